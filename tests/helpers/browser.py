"""Pages in a headless browser: what a reader of a telephone or of a dark screen could not read."""

import contextlib
import shutil
from collections.abc import Iterator

import pytest

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
SMALLEST = 11.0
"""Pixels of text."""
CONTRAST = 4.5
"""Of text and what is behind it (WCAG 2.2, AA)."""
ARGUMENTS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip

_FAULTS = """([smallest, wanted]) => {
  const faults = [];
  const root = document.documentElement;
  if (root.scrollWidth > window.innerWidth)
    faults.push(`the page is ${root.scrollWidth} px wide in ${window.innerWidth}`);
  const rgba = text => {
    let m = text.match(/^rgba?\\((.*)\\)$/);
    if (m) {
      const parts = m[1].split(/[ ,\\/]+/).map(Number);
      return [parts[0], parts[1], parts[2], parts[3] === undefined ? 1 : parts[3]];
    }
    m = text.match(/^color\\(srgb (.*)\\)$/);
    const parts = m[1].split(/[ \\/]+/).map(Number);
    return [...parts.slice(0, 3).map(x => 255 * x), parts[3] === undefined ? 1 : parts[3]];
  };
  const onto = (above, below) => {
    const a = above[3];
    return [0, 1, 2].map(i => above[i] * a + below[i] * (1 - a)).concat([1]);
  };
  const behind = element => {
    const layers = [];
    for (let e = element; e; e = e.parentElement) {
      const colour = rgba(getComputedStyle(e).backgroundColor);
      if (colour[3] > 0) layers.push(colour);
      if (colour[3] >= 1) break;
    }
    let colour = [255, 255, 255, 1];
    for (const layer of layers.reverse()) colour = onto(layer, colour);
    return colour;
  };
  const luminance = colour => {
    const [r, g, b] = colour.map(x => {
      x /= 255;
      return x <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const contrast = (a, b) => {
    const [x, y] = [luminance(a), luminance(b)].sort((p, q) => q - p);
    return (x + 0.05) / (y + 0.05);
  };
  const scrolls = element => {
    for (let e = element; e; e = e.parentElement)
      if (["auto", "scroll"].includes(getComputedStyle(e).overflowX) && e !== root) return true;
    return false;
  };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const text = walker.currentNode.textContent.trim();
    const element = walker.currentNode.parentElement;
    if (!text || !element.checkVisibility()) continue;
    if (element.closest("style, script, metadata, defs")) continue;
    const style = getComputedStyle(element);
    const range = document.createRange();
    range.selectNodeContents(walker.currentNode);
    const box = range.getBoundingClientRect();
    if (!box.width) continue;
    const said = `"${text.slice(0, 40)}"`;
    const picture = element.closest("svg");
    let scale = 1;
    let ink = style.color;
    if (picture) {
      const matrix = element.getScreenCTM();
      scale = Math.hypot(matrix.a, matrix.b);
      ink = style.fill;
    }
    const size = parseFloat(style.fontSize) * scale;
    if (size < smallest - 0.05) faults.push(`${said} is ${size.toFixed(1)} px`);
    const paper = behind(element);
    const found = contrast(onto(rgba(ink), paper), paper);
    if (found < wanted) faults.push(`${said} has contrast ${found.toFixed(2)}`);
    if (picture) {
      const frame = picture.getBoundingClientRect();
      const out = Math.max(
        frame.left - box.left, box.right - frame.right, frame.top - box.top,
        box.bottom - frame.bottom
      );
      if (out > 2) faults.push(`${said} is cut by its picture, ${out.toFixed(0)} px`);
    } else if (box.right > window.innerWidth + 1 && !scrolls(element)) {
      faults.push(`${said} is cut by the window`);
    }
  }
  return faults;
}"""


def faults(page) -> list[str]:
    """What cannot be read on a page (playwright's) that is open: a page wider than its window, text
    that is small, pale or cut off."""
    return page.evaluate(_FAULTS, [SMALLEST, CONTRAST])


@contextlib.contextmanager
def browser() -> Iterator[object]:
    """A headless browser of this machine. Skips the test, with the reason, where there is none."""
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="playwright is not installed (extra browser)"
    )
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        pytest.skip(f"no browser on this machine ({', '.join(BROWSERS)})")
    with playwright.sync_playwright() as started:
        # Playwright gives it a new profile of its own.
        opened = started.chromium.launch(executable_path=found, args=list(ARGUMENTS))
        try:
            yield opened
        finally:
            opened.close()
