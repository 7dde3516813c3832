import { mount } from "svelte";
import "./page.css";
import Page from "./parts/Page.svelte";

const target = document.getElementById("page");
if (!target) throw new Error("index.html has no element #page");
mount(Page, { target });
