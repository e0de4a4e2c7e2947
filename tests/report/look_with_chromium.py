"""Opens report pages in headless Chromium: no complaint in the console, no request, nothing executed from the data,
and the basics of access kept. Ends with 77 (skipped) where Chromium is missing.

  look_with_chromium.py TEST_REPORT     with TANDEM_SCREENSHOTS=DIR pictures of every page are kept there
"""
import base64
import hashlib
import os
import pathlib
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(__file__))
from chromium import Chromium, find_chromium  # noqa: E402

# In the page: texts whose contrast is below 4.5 (3 where large), controls without a name, ids twice, jumps in headings.
BASICS = r"""
(() => {
  const problems = [];
  const parse = (text) => { const n = (text.match(/[\d.]+/g) || []).map(Number); return {r: n[0], g: n[1], b: n[2], a: n.length > 3 ? n[3] : 1}; };
  const light = (c) => { const f = (v) => { v /= 255; return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; };
    return 0.2126 * f(c.r) + 0.7152 * f(c.g) + 0.0722 * f(c.b); };
  const ground = (e) => { for (; e; e = e.parentElement) { const c = parse(getComputedStyle(e).backgroundColor); if (c.a === 1) return c; } return {r: 255, g: 255, b: 255}; };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const seen = new Set();
  while (walker.nextNode()) {
    const e = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || ['SCRIPT', 'STYLE', 'NOSCRIPT'].includes(e.tagName) || e.getClientRects().length === 0) continue;
    const style = getComputedStyle(e);
    const a = light(parse(style.color)), b = light(ground(e));
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    const size = parseFloat(style.fontSize);
    if (ratio < (size >= 24 ? 3 : 4.5)) problems.push(`contrast ${ratio.toFixed(2)}: ${e.tagName}.${e.className} ${walker.currentNode.data.slice(0, 40)}`);
    if (size < 12) problems.push(`small text ${size}: ${e.className} ${walker.currentNode.data.slice(0, 40)}`);
  }
  for (const e of document.querySelectorAll('input, button, select')) {
    if (e.getClientRects().length === 0) continue;
    const name = e.getAttribute('aria-label') || (e.labels && [...e.labels].map((l) => l.textContent).join('')) || e.textContent;
    if (!name || !name.trim()) problems.push('no name: ' + e.outerHTML.slice(0, 80));
  }
  for (const e of document.querySelectorAll('[tabindex="0"]')) {
    if (!e.getAttribute('aria-label') && e.tagName !== 'PRE') problems.push('no label: ' + e.outerHTML.slice(0, 80));
  }
  for (const e of document.querySelectorAll('[id]')) { if (seen.has(e.id)) problems.push('id twice: ' + e.id); seen.add(e.id); }
  let level = 0;
  for (const e of document.querySelectorAll('h1, h2, h3')) { const now = Number(e.tagName[1]); if (now > level + 1) problems.push('heading jumps: ' + e.textContent); level = now; }
  if (!document.documentElement.lang) problems.push('no language');
  if (!document.title) problems.push('no title');
  if (document.documentElement.scrollWidth > innerWidth) problems.push(`wider than the window: ${document.documentElement.scrollWidth} > ${innerWidth}`);
  return problems;
})()
"""

failures = []


def check(good, what):
    if not good:
        failures.append(what)
        print("FAILED:", what)


def check_hashes(page):
    """The policy admits exactly the scripts and the style that are there."""
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page).group(1)
    for kind, text in re.findall(r"<(script|style)>(.*?)</\1>", page, re.S):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        check(f"'sha256-{digest}'" in policy, f"the policy has no hash of a {kind}")


def look_at(browser, path, pictures):
    name = path.stem
    check_hashes(path.read_text())
    views = {"desktop": dict(width=1280, height=900), "phone": dict(width=390, height=844, phone=True),
             "dark": dict(width=1280, height=900, dark=True), "print": dict(width=720, height=1000, media="print")}
    for view, settings in views.items():
        browser.look(**settings)
        browser.open(path.as_uri())
        if view == "print":
            browser.run("dispatchEvent(new Event('beforeprint'))")
        if pictures:
            browser.screenshot(os.path.join(pictures, f"{name}-{view}.png"))
        for problem in browser.run(BASICS):
            check(False, f"{name}, {view}: {problem}")
        use(browser, name, view)
        check(browser.run("document.title.includes('PWNED')") is False, f"{name}: text was executed")
        for complaint in browser.complaints():
            check(False, f"{name}, {view}: {complaint}")
        others = [url for url in browser.requests() if not url.startswith("data:") and url != path.as_uri()]
        check(not others, f"{name}, {view}: requests {others}")


def use(browser, name, view):
    """Every control once, by mouse and keyboard; every fold opened."""
    charts = browser.run("document.querySelectorAll('.plot canvas').length")
    check(charts > 0 or name == "empty", f"{name}, {view}: no chart was drawn")
    check(browser.run("document.querySelectorAll('.answer, table.wide tbody tr').length") >= (0 if name == "empty" else 6),
          f"{name}, {view}: answers are missing")
    browser.run("document.querySelectorAll('details').forEach((d) => { if (d.dataset.key !== 'config') d.open = true; })")
    browser.wait(0.2)
    if charts == 0:
        return
    browser.run("document.querySelector('.plot').focus()")
    for key in ("ArrowLeft", "ArrowLeft", "+", "-", "Home", "End", "0"):
        browser.call("Input.dispatchKeyEvent", type="keyDown", key=key)
    check(browser.run("document.querySelector('.chart .at').textContent") != "", f"{name}, {view}: arrows show no value")
    browser.call("Input.dispatchKeyEvent", type="keyDown", key="Escape")
    if view == "print":
        return
    browser.run("document.querySelector('input[value=hours]').click()")
    browser.run("{const s = document.getElementById('smoothing'); s.value = 3; s.dispatchEvent(new Event('input'));}")
    check(browser.run("document.getElementById('smoothing-value').textContent") == "11 points", f"{name}: smoothing")
    browser.run("document.querySelector('.lines input').click(); document.getElementById('whole').click()")
    browser.run("document.querySelector('input[value=step]').click()")
    browser.run("{const s = document.getElementById('smoothing'); s.value = 0; s.dispatchEvent(new Event('input'));}")
    browser.run("document.querySelector('.lines input').click()")
    box = browser.run("{const b = document.querySelector('.plot').getBoundingClientRect(); scrollBy(0, b.top - 200);"
                      "const c = document.querySelector('.plot').getBoundingClientRect(); [c.left, c.top, c.width, c.height]}")
    middle = dict(x=box[0] + 0.6 * box[2], y=box[1] + box[3] / 2)
    browser.call("Input.dispatchMouseEvent", type="mouseMoved", **middle)
    browser.wait(0.2)
    check(browser.run("document.querySelector('.chart .at').textContent") != "", f"{name}, {view}: hover shows no value")


def main():
    if find_chromium() is None:
        print("SKIPPED: Chromium is missing, so the page was not opened; install the package chromium to run this")
        sys.exit(77)
    pictures = os.environ.get("TANDEM_SCREENSHOTS", "")
    with tempfile.TemporaryDirectory() as directory:
        subprocess.run([sys.argv[1], "--gtest_filter=PageFiles.*"], check=True, stdout=subprocess.DEVNULL,
                       env={**os.environ, "TANDEM_PAGES": directory})
        pages = sorted(pathlib.Path(directory).glob("*.html"))
        check(len(pages) >= 4, "the pages to look at are missing")
        browser = Chromium()
        try:
            for page in pages:
                look_at(browser, page, pictures)
        finally:
            browser.close()
    print("FAILED" if failures else "OK", f"({len(pages)} pages)")
    sys.exit(1 if failures else 0)


main()
