// Says the value of a map under the pointer, by its colour; the page is whole without it.
const ramps = [...document.querySelectorAll(".ramp-of")].map(one => one.dataset.colours.match(/.{6}/g).map(c => parseInt(c, 16)));
for (const image of document.querySelectorAll("figure img[data-low]")) {
  const canvas = document.createElement("canvas"), tip = document.createElement("span");
  tip.className = "tip";
  image.after(tip);
  image.addEventListener("pointerleave", () => tip.textContent = "");
  image.addEventListener("pointermove", event => {
    canvas.width = image.naturalWidth; canvas.height = image.naturalHeight;
    const pen = canvas.getContext("2d"), x = Math.floor(event.offsetX / image.clientWidth * canvas.width);
    const y = Math.floor(event.offsetY / image.clientHeight * canvas.height);
    pen.drawImage(image, 0, 0);
    const [r, g, b, a] = pen.getImageData(x, y, 1, 1).data, colour = (r << 16) | (g << 8) | b;
    const at = Math.max(...ramps.map(ramp => ramp.indexOf(colour))), low = +image.dataset.low, high = +image.dataset.high;
    const end = at === 0 ? "≤ " : at === 254 ? "≥ " : "";
    tip.textContent = a === 0 || at < 0 ? "no value" : end + (low + at / 254 * (high - low)).toPrecision(3);
  });
}
