// Cells: an image with rows and columns of colours, read with the pointer, by tapping or with the keyboard.
function rgb(text) {
  const n = parseInt(text.slice(1), 16);
  return [(n >> 16) & 255, (n >> 8) & 255, n & 255];
}
const blend = (from, to, share) => from.map((c, i) => c + share * (to[i] - c));
// Paint the cells to a size in pixels, with lines between rows that are high enough.
function paintCells(canvas, width, height, rows, columns, colour, lines = true) {
  const ratio = Math.min(3, devicePixelRatio || 1);
  canvas.width = Math.round(width * ratio); canvas.height = Math.round(height * ratio);
  canvas.style.width = `${width}px`; canvas.style.height = `${height}px`;
  const small = new OffscreenCanvas(columns, rows), pen = small.getContext("2d");
  const image = pen.createImageData(columns, rows);
  for (let row = 0; row < rows; row++) for (let column = 0; column < columns; column++) {
    image.data.set([...colour(row, column), 255], 4 * (row * columns + column));
  }
  pen.putImageData(image, 0, 0);
  const ink = canvas.getContext("2d");
  ink.imageSmoothingEnabled = columns > canvas.width;
  ink.drawImage(small, 0, 0, canvas.width, canvas.height);
  if (!lines || height / rows < 6) return;
  ink.fillStyle = cssColour("--paper");
  for (let row = 1; row < rows; row++) ink.fillRect(0, Math.round((row * canvas.height) / rows), canvas.width, 1);
}
// Pointer, taps and arrow keys call `read(row, column, x, y)`.
function addCellCursor(element, canvas, label, rows, columns, read) {
  let row = 0, column = -1;
  element.tabIndex = 0;
  element.setAttribute("role", "group");
  element.setAttribute("aria-roledescription", "chart");
  element.setAttribute("aria-label", `${label}. Use the arrow keys to read it.`);
  canvas.onpointermove = canvas.onpointerdown = (event) => {
    const b = canvas.getBoundingClientRect();
    column = Math.min(columns - 1, Math.max(0, Math.floor(((event.clientX - b.left) / b.width) * columns)));
    row = Math.min(rows - 1, Math.max(0, Math.floor(((event.clientY - b.top) / b.height) * rows)));
    read(row, column, event.clientX, event.clientY);
  };
  // A finger leaves when it is lifted: the text stays until another place is tapped.
  canvas.onpointerleave = (event) => { if (event.pointerType !== "touch") hideTip(); };
  element.onblur = hideTip;
  element.onkeydown = (event) => {
    const move = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0], Home: [0, -Infinity], End: [0, Infinity] }[event.key];
    if (!move) return;
    event.preventDefault();
    row = Math.min(rows - 1, Math.max(0, row + move[0]));
    column = Math.min(columns - 1, Math.max(0, column + move[1]));
    const b = canvas.getBoundingClientRect();
    read(row, column, b.left + ((column + 0.5) / columns) * b.width, b.top + ((row + 0.5) / rows) * b.height);
  };
}
