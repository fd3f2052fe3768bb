/** The report's page: reads the data that stand in it, and draws them. */
import { mount } from "svelte";
import "../tokens.css";
import "../base.css";
import "../print.css";
import type { BundleData } from "$lib/schema";
import Report from "./Report.svelte";

const target = document.getElementById("app");
const data = document.getElementById("limelight-data")?.textContent;
if (!target || !data) throw new Error("The report has lost its data.");
mount(Report, { target, props: { bundle: JSON.parse(data) as BundleData } });
