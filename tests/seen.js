// What is wrong with how a page looks, for tests in a browser. `settle` comes first; the others are checks.
({
  // Bring a page to rest: scripts hear of a new size or colour scheme in the next frame, what they change is laid out
  // in the one after it, and what then moves or fades is taken to its end.
  async settle() {
    const frame = () => new Promise(requestAnimationFrame);
    const moving = () => document.getAnimations().filter((each) => each.effect.getComputedTiming().endTime < Infinity);
    await document.fonts.ready;
    do {
      for (const each of moving()) each.finish();
      await frame();
      await frame();
    } while (moving().some((each) => each.playState === "running"));
  },

  // Text whose contrast to what is behind it is less than 4.5, by the Web Content Accessibility Guidelines.
  pale(root) {
    const parse = (c) => (c.match(/[\d.]+/g) || [0, 0, 0, 0]).map(Number);
    const linear = (x) => x <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4;
    const over = (a, b) => a.slice(0, 3).map((x, i) => a.length < 4 ? x : a[3] * x + (1 - a[3]) * b[i]);
    const light = (c) => c.slice(0, 3).reduce((sum, x, i) => sum + linear(x / 255) * [0.2126, 0.7152, 0.0722][i], 0);
    const behind = (e) => {
      for (; e; e = e.parentElement) {
        const colour = parse(getComputedStyle(e).backgroundColor);
        if (colour.length < 4 || colour[3] > 0.99) return colour;
      }
      return [255, 255, 255];
    };
    const found = [];
    for (const e of document.querySelectorAll(`${root} *`)) {
      const own = [...e.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
      if (!own || !e.checkVisibility() || e.disabled || e.closest("svg")) continue;
      const ground = behind(e), text = over(parse(getComputedStyle(e).color), ground);
      const [a, b] = [light(text), light(ground)].sort((x, y) => y - x);
      const ratio = (a + 0.05) / (b + 0.05);
      if (ratio < 4.5) found.push([e.textContent.trim().slice(0, 40), ratio.toFixed(2)]);
    }
    return found;
  },

  // Elements whose text does not fit into them.
  cut(root) {
    return [...document.querySelectorAll("th, td, dd, button, p, h1, h2, h3, label")]
      .filter((e) => e.closest(root) && e.checkVisibility() && getComputedStyle(e).display !== "inline")
      .filter((e) => e.scrollWidth > e.clientWidth + 1)
      .map((e) => e.textContent.trim().slice(0, 50));
  },

  // Names and numbers of bars that stand on each other.
  overlapping() {
    const boxes = [...document.querySelectorAll("table.bars th, table.bars td.number")]
      .filter((e) => e.textContent && e.checkVisibility())
      .map((e) => { const range = document.createRange(); range.selectNodeContents(e); return [e, range.getBoundingClientRect()]; });
    const meet = (a, b) => a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 1 && b.top < a.bottom - 1;
    const found = [];
    boxes.forEach(([e, a], i) => boxes.slice(i + 1).forEach(([f, b]) => {
      if (meet(a, b)) found.push([e.textContent, f.textContent]);
    }));
    return found;
  },
})
