"use strict";
// How long ago a sweep was created in place of the time, which is shown on pointing. Rows have been read by then: they
// are filtered and sorted by the time itself.

const AGE = new Intl.RelativeTimeFormat("en", { style: "short" });
const AGES = [["year", 31_557_600], ["month", 2_629_800], ["day", 86_400], ["hour", 3600], ["minute", 60], ["second", 1]];

showAges();
setInterval(showAges, 60_000);

function showAges() {
  for (const time of document.querySelectorAll("time")) {
    time.title ||= `${time.textContent} UTC`;
    const seconds = (Date.parse(time.dateTime) - Date.now()) / 1000;
    const [unit, size] = AGES.find(([, each]) => -seconds >= each) ?? AGES.at(-1);
    time.textContent = AGE.format(Math.trunc(seconds / size), unit);
  }
}
