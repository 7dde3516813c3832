"""What holds for every picture of the page, in every scheme and width: contrast, sizes, names, and nothing sticks out.

Each check is a function of the page that answers what is wrong; an empty list is right.
"""

from __future__ import annotations

from playwright.async_api import Page

CONTRAST = """() => {
  const parse = (c) => {
    const m = c.match(/rgba?\\(([^)]+)\\)/);
    if (!m) return null;
    const [r, g, b, a = 1] = m[1].split(/[ ,/]+/).map(Number);
    return { r, g, b, a };
  };
  const light = ({ r, g, b }) => {
    const f = (v) => { v /= 255; return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; };
    return 0.2126 * f(r) + 0.7152 * f(g) + 0.0722 * f(b);
  };
  const ratio = (x, y) => {
    const [a, b] = [light(x), light(y)].sort((p, q) => q - p);
    return (a + 0.05) / (b + 0.05);
  };
  const under = (element) => {
    for (let e = element; e; e = e.parentElement) {
      const colour = parse(getComputedStyle(e).backgroundColor);
      if (colour && colour.a === 1) return colour;
    }
    return parse(getComputedStyle(document.body).backgroundColor);
  };
  const faults = [];
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walk.nextNode(); node; node = walk.nextNode()) {
    const element = node.parentElement;
    const glyph = element.matches('.glyph, .mark');
    if (!node.textContent.trim() || element.closest('.sr, noscript, script, :disabled')) continue;
    if (!glyph && element.closest('[aria-hidden=true]')) continue;
    if (!element.checkVisibility({ visibilityProperty: true, opacityProperty: true })) continue;
    const style = getComputedStyle(element);
    const found = ratio(parse(style.color), under(element));
    const size = parseFloat(style.fontSize);
    const large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
    if (found < (large || glyph ? 3 : 4.5)) faults.push(`${found.toFixed(2)} ${node.textContent.trim().slice(0, 40)}`);
  }
  for (const field of document.querySelectorAll('input:not([type=checkbox]), textarea, select')) {
    if (field.matches(':disabled') || !field.checkVisibility({ visibilityProperty: true })) continue;
    const framed = field.closest('form.compose') ?? field;
    const found = ratio(parse(getComputedStyle(framed).borderTopColor), under(framed.parentElement));
    if (framed.matches('form.compose:not(:focus-within)')) continue;  // its place and its hint tell it
    if (found < 3) faults.push(`edge ${found.toFixed(2)} ${field.outerHTML.slice(0, 60)}`);
  }
  return faults;
}"""

TARGETS = """() => [...document.querySelectorAll(
    'button, a[href], input, textarea, select, summary, [role=menuitem], [role=menuitemradio]')]
  .filter((e) => e.checkVisibility({ visibilityProperty: true }) && !e.closest('.md p, .md li, .md td, .skip'))
  .map((e) => [e, e.getBoundingClientRect()])
  .filter(([e, r]) => r.width > 0 && (r.width < 24 || r.height < 24) && !e.matches('label input'))
  .map(([e, r]) => `${e.outerHTML.slice(0, 80)} ${r.width}x${r.height}`)"""

NAMELESS = """() => [...document.querySelectorAll(
    'button, a[href], input, textarea, select, nav, aside, dialog, section.card,' +
    '[role=menu], [role=region], [role=progressbar]'
  )]
  .filter((e) => e.checkVisibility())
  .filter((e) => {
    const by = e.getAttribute('aria-labelledby');
    const name = e.getAttribute('aria-label') || (by && document.getElementById(by)?.textContent)
      || (['BUTTON', 'A'].includes(e.tagName) ? e.textContent : '') || e.labels?.[0]?.textContent || '';
    return !name.trim();
  }).map((e) => e.outerHTML.slice(0, 100))"""

IDS = """() => {
  const ids = [...document.querySelectorAll('[id]')].map((e) => e.id);
  const doubled = ids.filter((id, i) => ids.indexOf(id) !== i);
  const named = ['aria-labelledby', 'aria-controls', 'aria-describedby', 'for'];
  const dangling = [...document.querySelectorAll(named.map((n) => `[${n}]`).join())]
    .flatMap((e) => named.flatMap((n) => (e.getAttribute(n) ?? '').split(' ')))
    .filter((id) => id && !document.getElementById(id));
  return [...doubled, ...dangling];
}"""

STICKS_OUT = """() => {
  const root = document.documentElement;
  return root.scrollWidth > root.clientWidth ? [`${root.scrollWidth} in ${root.clientWidth}`] : [];
}"""


async def faults(page: Page) -> list[str]:
    """Everything that is wrong with what the page shows now."""
    found: list[str] = []
    for check in (CONTRAST, TARGETS, NAMELESS, IDS, STICKS_OUT):
        found += await page.evaluate(check)
    return found
