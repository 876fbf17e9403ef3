// Copying and saving a figure as it stands, with its title and legend, as SVG or PNG, and its data as CSV.

const PNG_SCALE = 2,
  LEGEND_ROW = 20,
  TITLE_HEIGHT = 26;

function copyMenu(figure) {
  const message = element("span", { role: "status" });
  const button = (label, act) =>
    element(
      "button",
      {
        type: "button",
        onclick: async () => {
          message.textContent = ""; // a screen reader is told each result, the same one too
          message.textContent = await act();
        },
      },
      label,
    );
  const copied = (done) => (done ? "Copied." : "The browser does not allow copying here: save the figure instead.");
  const file = (suffix) => `${data.title}-${figure.name}.${suffix}`.replace(/[^\w.-]+/g, "_");
  return element(
    "details",
    { class: "menu" },
    element("summary", {}, "Copy or save"),
    element(
      "div",
      {},
      button("Copy SVG", async () => copied(await copyText(figureSvg(figure)))),
      button("Copy PNG", async () => copied(await copyPng(figure))),
      button("Copy CSV", async () => copied(await copyText(figureCsv(figure)))),
      button("Save SVG", async () => {
        saveFile(figureSvg(figure), "image/svg+xml", file("svg"));
        return "Saved.";
      }),
      button("Save PNG", async () => {
        saveFile(await figurePng(figure), "image/png", file("png"));
        return "Saved.";
      }),
      button("Save CSV", async () => {
        saveFile(figureCsv(figure), "text/csv", file("csv"));
        return "Saved.";
      }),
      message,
    ),
  );
}

function figureSvg(figure) {
  const { width, chart, drawn } = figure,
    colours = theme(),
    off = new Set(listInView(`${figure.name}.off`));
  const items = drawn.legend.filter((item) => !off.has(item.key)),
    columns = width > 480 ? 2 : 1;
  const height = TITLE_HEIGHT + drawn.height + LEGEND_ROW * Math.ceil(items.length / columns) + 8;
  const parsed = new DOMParser().parseFromString(chart.renderToSVGString(), "image/svg+xml").documentElement;
  parsed.setAttribute("y", TITLE_HEIGHT);
  parsed.setAttribute("width", width);
  parsed.setAttribute("height", drawn.height);
  const legend = items.map((item, index) => {
    const x = 12 + (index % columns) * (width / columns),
      y = TITLE_HEIGHT + drawn.height + LEGEND_ROW * Math.floor(index / columns);
    const label = escaped(shortened(item.label, Math.round(width / columns / 8)));
    const text = `<text x="34" y="11" font-size="12">${label}</text>`;
    return `<g transform="translate(${x} ${y})">${swatch(item, colours.page)}${text}</g>`;
  });
  const title = escaped(`${data.title}: ${figure.element.dataset.title}`);
  const size = `width="${width}" height="${height}" viewBox="0 0 ${width} ${height}"`;
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" ${size} font-family="system-ui, sans-serif" fill="${colours.text}">`,
    `<rect width="100%" height="100%" fill="${colours.page}"/>`,
    `<text x="12" y="18" font-size="14" font-weight="600">${title}</text>`,
    new XMLSerializer().serializeToString(parsed),
    ...legend,
    "</svg>",
  ].join("");
}

// What is drawn, a line for each mark or point.
function figureCsv(figure) {
  const field = (value) => (/[",\n\r]/.test(value) ? `"${value.replaceAll('"', '""')}"` : value);
  return figure.drawn.csv().map((row) => `${row.map((value) => field(String(value ?? ""))).join(",")}\n`).join("");
}

function escaped(text) {
  return text.replace(/[&<>"]/g, (character) => `&#${character.charCodeAt(0)};`);
}

async function figurePng(figure) {
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(figureSvg(figure))}`;
  await image.decode();
  const canvas = element("canvas", { width: PNG_SCALE * image.width, height: PNG_SCALE * image.height });
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  return new Promise((resolve) => {
    canvas.toBlob(resolve, "image/png");
  });
}

async function copyPng(figure) {
  try {
    await navigator.clipboard.write([new ClipboardItem({ "image/png": figurePng(figure) })]);
    return true;
  } catch {
    return false;
  }
}
