// The texts of the page, as [contrast, text], whose contrast with the nearest background is below 4.5 to 1.
(() => {
  const canvas = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
  const rgba = (color) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = color;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const luminance = (color) =>
    color
      .slice(0, 3)
      .map((part) => part / 255)
      .map((part) => (part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4))
      .reduce((sum, part, k) => sum + part * [0.2126, 0.7152, 0.0722][k], 0);
  const background = (node) => {
    if (node.closest(".box")) return rgba(getComputedStyle(node.closest(".box").querySelector("rect")).fill);
    for (let at = node; at; at = at.parentElement) {
      const color = rgba(getComputedStyle(at).backgroundColor);
      if (color[3] === 255) return color;
    }
    return [255, 255, 255, 255];
  };
  const found = [];
  const texts = document.createTreeWalker(document.getElementById("app"), NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const node = texts.currentNode.parentElement;
    if (!texts.currentNode.data.trim() || !node.checkVisibility() || node.closest("title, option")) continue;
    const style = getComputedStyle(node);
    const [a, b] = [
      luminance(rgba(node instanceof SVGElement ? style.fill : style.color)),
      luminance(background(node)),
    ];
    const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (contrast < 4.5) found.push([Number(contrast.toFixed(2)), texts.currentNode.data]);
  }
  return found.slice(0, 10);
})();
