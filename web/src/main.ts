import { mount } from "svelte";
import App from "./App.svelte";
import { enter } from "$lib/tab";
import "./tokens.css";
import "./base.css";
import "./print.css";

enter();
const target = document.getElementById("app");
if (!target) throw new Error("The page has no element #app to draw in.");
mount(App, { target });
