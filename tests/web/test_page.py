"""The page in a real browser: Chromium without a window."""

import io
import json
import shutil
import urllib.request
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.error import HTTPError
from urllib.parse import quote, urlsplit

import pytest

import mldecoder as mld
from tests.predict.pictures import scene
from tests.web.pages import png, running_page, save_zero_shot

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

CHROMIUM = (shutil.which("chromium") or shutil.which("chromium-browser")) if find_spec("playwright") else None
needs_chromium = pytest.mark.skipif(
    CHROMIUM is None, reason="needs a browser: apt-get install chromium, pip install playwright"
)
pytestmark = pytest.mark.skipif(find_spec("gradio") is None, reason='needs gradio: pip install "mldecoder[web]"')


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_zero_shot(tmp_path_factory.mktemp("run"))


@pytest.fixture(scope="module")
def browser() -> "Iterator[Browser | None]":
    if CHROMIUM is None:
        yield None
        return
    from playwright.sync_api import sync_playwright

    with sync_playwright() as started:
        opened = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def address(run: Path, browser: "Browser | None") -> Iterator[str]:
    """One page for all tests; at the end Ctrl-C must stop it, although somebody still looks at it."""
    with running_page(run, "--max-upload", "1MB") as address:
        if browser is not None:
            browser.new_page().goto(address)
        yield address


@pytest.fixture
def page(browser: "Browser", address: str) -> "Iterator[Page]":
    """A fresh page; that nothing asked another machine for anything is checked at the end of every test."""
    context = browser.new_context(viewport={"width": 1100, "height": 900})
    page, asked = context.new_page(), []
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda line: asked.append("https://refused") if "Content Security" in line.text else None)
    page.goto(address)
    page.wait_for_selector("#answer .empty")
    yield page
    context.close()
    strangers = {urlsplit(url).hostname for url in asked if not url.startswith(("data:", "blob:"))}
    assert strangers == {"127.0.0.1"}


def drop(page: "Page", name: str, content: bytes) -> None:
    """Upload a file as a user's drop does."""
    page.set_input_files("#photo input[type=file]", {"name": name, "mimeType": "image/png", "buffer": content})


def shown(page: "Page") -> dict[str, str]:
    """Label and score of each bar."""
    rows = page.locator("#answer li")
    return dict(zip(rows.locator(".label").all_inner_texts(), rows.locator(".score").all_inner_texts(), strict=True))


def expected(run: Path, i: int, labels: list[str] | None = None) -> dict[str, str]:
    [made] = mld.load(run).predict(png(i), labels=labels)
    best = sorted(zip(made.scores, made.labels, strict=True), key=lambda pair: -pair[0])
    return {label: f"{score:.2f}" for score, label in best}


@needs_chromium
def test_a_dropped_photo_gets_its_tags_and_a_ticked_tag_its_map(page: "Page", run: Path) -> None:
    drop(page, "scene.png", png(1))
    page.wait_for_selector("#answer .tags")
    scores = shown(page)
    wanted = expected(run, 1)
    assert len(scores) >= 12
    assert scores == {label: wanted[label] for label in scores}
    page.locator("#answer input").nth(1).check()
    page.wait_for_selector("#answer li:nth-child(2) figure img")
    assert page.locator("#answer figure").count() == 1
    assert page.evaluate("document.querySelector('#answer figure img').naturalWidth") >= 64
    page.locator("#answer input").nth(1).uncheck()
    page.wait_for_selector("#answer figure", state="detached")


@needs_chromium
def test_own_words_are_scored_and_a_new_photo_keeps_them(page: "Page", run: Path) -> None:
    drop(page, "scene.png", png(1))
    page.wait_for_selector("#answer .tags")
    page.locator("#answer input").first.check()
    page.wait_for_selector("#answer figure")
    page.fill("#words input, #words textarea", "dog, red squarre, sunset")
    page.click("#ask")
    page.wait_for_selector("#answer li:nth-child(4)", state="detached")
    assert shown(page) == expected(run, 1, ["dog", "red squarre", "sunset"])
    assert "square (nearest spelling of 'squarre')" in page.inner_text("#answer .note")
    assert page.locator("#answer input:checked").count() == 0  # what was ticked belonged to the answer before
    page.click("#photo button[aria-label^=Remove]")
    page.wait_for_selector("#answer .empty")
    drop(page, "other.png", png(7))
    page.wait_for_selector("#answer .tags")
    assert shown(page) == expected(run, 7, ["dog", "red squarre", "sunset"])


@needs_chromium
def test_a_broken_upload_says_so_and_the_page_goes_on(page: "Page") -> None:
    drop(page, "text.jpg", b"I am a text")
    page.wait_for_selector("#answer .message")
    assert "not a picture in a known format" in page.inner_text("#answer")
    page.locator("#examples .gallery-item").first.click()
    page.wait_for_selector("#answer .tags")
    assert len(shown(page)) >= 12


@needs_chromium
def test_a_picture_that_browsers_cannot_show_is_shown(page: "Page") -> None:
    file = io.BytesIO()
    scene(3).save(file, "TIFF")
    drop(page, "scan.tiff", file.getvalue())
    page.wait_for_selector("#answer .tags")
    page.wait_for_function("document.querySelector('#photo img')?.naturalWidth === 64")


@needs_chromium
def test_the_page_fits_a_phone(page: "Page") -> None:
    page.set_viewport_size({"width": 400, "height": 800})
    drop(page, "scene.png", png(1))
    page.wait_for_selector("#answer .tags")
    assert page.evaluate("document.documentElement.scrollWidth") <= 400


@pytest.mark.slow
@needs_chromium
def test_fifty_megabytes_and_twenty_quick_uploads_leave_it_answering(page: "Page", run: Path) -> None:
    page.set_input_files(
        "#photo input[type=file]", {"name": "big.jpg", "mimeType": "image/jpeg", "buffer": bytes(50_000_000)}
    )
    page.get_by_text("maximum allowed size").first.wait_for()
    drop(page, "text.jpg", b"I am a text")
    page.wait_for_selector("#answer .message")
    for i in range(20):
        if i:
            page.click("#photo button[aria-label^=Remove]")
        drop(page, f"scene-{i}.png", png(i))
        page.wait_for_selector("#photo button[aria-label^=Remove]")
    last = expected(run, 19)
    first = next(iter(last.items()))
    page.wait_for_function(
        "([label, score]) => document.querySelector('#answer li .label')?.innerText === label"
        " && document.querySelector('#answer li .score')?.innerText === score",
        arg=list(first),
    )
    assert shown(page) == {label: last[label] for label in shown(page)}


def post(address: str, content: bytes, labels: str = "") -> tuple[int, dict[str, object]]:
    """Ask as a program does."""
    wish = f"?labels={quote(labels)}" if labels else ""
    request = urllib.request.Request(f"{address}/api/tags{wish}", data=content, method="POST")
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, json.load(answer)
    except HTTPError as error:
        with error:
            return error.code, json.load(error)


def test_the_route_for_programs_answers_as_predict_does(address: str, run: Path) -> None:
    model = mld.load(run)
    for labels in (None, ["dog", "red square"]):
        [wanted] = model.predict(png(4), labels=labels)
        code, made = post(address, png(4), ",".join(labels or []))
        assert code == 200
        assert made["tags"] == wanted.to_dict()["tags"]
        assert made["scores"] == wanted.to_dict(all_scores=True)["scores"]
        assert made["thresholds"] == dict(zip(wanted.labels, wanted.thresholds.tolist(), strict=True))


def test_the_route_refuses_in_one_line(address: str) -> None:
    too_large = {"error": "The file must have at most 1 MB. Make it smaller."}
    assert post(address, bytes(3_000_000)) == (413, too_large)
    assert post(address, b"text") == (
        400,
        {"error": "This file cannot be shown to the model: not a picture in a known format."},
    )
    code, made = post(address, png(0), "dog, %&!")
    assert code == 400
    assert "%&!" in str(made["error"])


def test_gradio_and_fastapi_offer_nothing_beside_the_page(address: str) -> None:
    for path in ("/docs", "/redoc"):  # they would fetch their scripts elsewhere
        with pytest.raises(HTTPError, match="404"):
            urllib.request.urlopen(address + path, timeout=60)
    with urllib.request.urlopen(f"{address}/gradio_api/info", timeout=60) as answer:
        assert json.load(answer) == {"named_endpoints": {}, "unnamed_endpoints": {}}
