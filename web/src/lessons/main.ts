/** The lessons' page: reads what lies in it, answers in the studio's place, and draws. */
import { mount } from "svelte";
import "../tokens.css";
import "../base.css";
import "../print.css";
import { answerWith } from "$lib/api";
import { language } from "$lib/language.svelte";
import { router } from "$lib/router.svelte";
import type { LessonsData } from "$lib/schema";
import { Held } from "./held";
import Lessons from "./Lessons.svelte";

const target = document.getElementById("app");
const text = document.getElementById("limelight-data")?.textContent;
if (!target || !text) throw new Error("The lessons have lost their data.");
const data = JSON.parse(text) as LessonsData;
answerWith(new Held(data));
if (!location.hash) router.replace(data.address);
language.begin(data.address);
mount(Lessons, { target, props: { part: data.part, home: data.home } });
