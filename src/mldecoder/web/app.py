"""The page's layout, what happens on it, and the route that programs use."""

from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

import gradio as gr
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from starlette.concurrency import run_in_threadpool

from mldecoder.errors import DataError, MLDecoderError
from mldecoder.model import Classifier
from mldecoder.training.report.markup import Html, join, tag
from mldecoder.web.answer import Answerer, preview, read_words
from mldecoder.web.bars import bars, message, nothing
from mldecoder.web.examples import write_examples
from mldecoder.web.guard import ContentPolicy, LimitBody
from mldecoder.web.limits import as_text, check_file

__all__ = ["ROUTE", "build_app", "build_page"]

ROUTE = "/api/tags"
_FORM = 65_536  # bytes that a form may have around the file


class Asked(NamedTuple):
    """What the answer on the page belongs to: a picture in the page's folder, and words."""

    picture: str
    words: tuple[str, ...]


def build_app(answerer: Answerer, title: str, folder: Path) -> FastAPI:
    """The page and the route in one application.

    Args:
        answerer: The model.
        title: What the page calls it, such as the run's folder.
        folder: For the examples; uploads go where ``GRADIO_TEMP_DIR`` says.
    """
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)  # FastAPI's own pages fetch scripts elsewhere
    app.add_middleware(LimitBody, max_bytes=answerer.max_bytes + _FORM)
    app.add_middleware(ContentPolicy)

    @app.post(ROUTE)
    async def tags(request: Request, labels: str = "") -> JSONResponse:
        """The body is a picture file; ``?labels=a,b`` asks for words."""
        content = await request.body()
        try:
            check_file(len(content), answerer.max_bytes)
            words = read_words(labels)
            answer = await run_in_threadpool(answerer.tags, content, words)
        except MLDecoderError as error:
            return JSONResponse({"error": str(error)}, status_code=400)
        return JSONResponse(answer.to_dict())

    mounted: FastAPI = gr.mount_gradio_app(
        app,
        build_page(answerer, title, folder),
        path="/",
        footer_links=[],
        run_history=False,
        max_file_size=answerer.max_bytes,
        ssr_mode=False,
        enable_monitoring=False,
        show_error=True,
        theme=_theme(),
        css=_asset("page.css"),
        mcp_server=False,
    )
    return mounted


def build_page(answerer: Answerer, title: str, folder: Path) -> gr.Blocks:
    """The page alone."""
    examples = [str(path) for path in write_examples(folder)]
    zero_shot = answerer.model.zero_shot
    page = gr.Blocks(title=f"{title} - mldecoder", analytics_enabled=False)
    with page:
        asked = gr.State(None)
        gr.HTML(_about(answerer.model, title), elem_id="about", js_on_load=None)
        with gr.Row():
            with gr.Column(min_width=320, elem_id="question"):
                photo = gr.Image(
                    label=f"Photo (at most {as_text(answerer.max_bytes)})",
                    type="filepath",
                    image_mode=None,
                    sources=["upload", "clipboard"],
                    buttons=["fullscreen"],
                    height=360,
                    elem_id="photo",
                )
                words = gr.Textbox(
                    label="Own words",
                    info="Separate them with commas; empty takes the labels of the model.",
                    placeholder="dog, red car, sunset",
                    max_length=4000,
                    visible=zero_shot,
                    elem_id="words",
                )
                ask = gr.Button("Ask", visible=zero_shot, elem_id="ask")
                drawn = gr.Dataset(
                    label="Examples",
                    components=["image"],
                    samples=[[path] for path in examples],
                    type="index",
                    elem_id="examples",
                )
            with gr.Column(min_width=320):
                answer = gr.HTML(nothing(), js_on_load=_asset("page.js"), elem_id="answer")
        gr.HTML(_foot(), elem_id="foot", js_on_load="element.querySelector('code span').textContent = location.origin")

        def tell(picture: dict[str, Any] | None, text: str | None) -> tuple[Any, Asked | None, Html]:
            if picture is None:
                return gr.skip(), None, nothing()
            return show(picture["path"], text)

        def example(number: int, text: str | None) -> tuple[Any, Asked | None, Html]:
            _, now, html = show(examples[number], text)
            return examples[number], now, html

        def again(before: Asked | None, text: str | None) -> tuple[Any, Asked | None, Html]:
            return (gr.skip(), None, nothing()) if before is None else show(before.picture, text, keep=before)

        def show(path: str, text: str | None, keep: Asked | None = None) -> tuple[Any, Asked | None, Html]:
            try:
                content = _read(path)
                now = Asked(path, read_words(text or "") if zero_shot else ())
                told = answerer.tags(content, now.words)
                return preview(content) or gr.skip(), now, bars(told)
            except DataError as error:  # the picture cannot be used: take it off the page
                return None, None, message(str(error))
            except MLDecoderError as error:
                return gr.skip(), keep or Asked(path, ()), message(str(error))

        def tick(event: gr.EventData, now: Asked | None) -> object:
            if now is None:
                return gr.skip()
            try:
                content = _read(now.picture)
                told = answerer.tags(content, now.words)
            except MLDecoderError as error:
                return message(str(error))
            # a tick may have been made in an answer that was replaced meanwhile
            ticked = [label for label in event.ticked if label in told.prediction.labels]
            try:
                return bars(told, answerer.maps(content, ticked, now.words))
            except MLDecoderError as error:  # not every backbone has a grid to draw on
                return join([message(str(error)), bars(told)])

        # The newest wish counts: what comes while an answer is made is answered next. Pictures are read by us, not by
        # Gradio (preprocess=False), which would say of a broken file only where on the disk it lies.
        outputs = [photo, asked, answer]
        common: dict[str, Any] = {"trigger_mode": "always_last", "api_visibility": "private", "concurrency_id": "model"}
        progress: dict[str, Any] = {"show_progress": "minimal", "show_progress_on": answer}
        photo.input(tell, [photo, words], outputs, preprocess=False, **common, **progress)
        drawn.click(example, [drawn, words], outputs, **common, **progress)
        if zero_shot:
            gr.on([words.submit, ask.click], again, [asked, words], outputs, **common, **progress)
        answer.tick(tick, [asked], answer, **common, **progress)
    return page


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError:
        raise DataError("The picture is not kept any more. Drop it again.") from None


def _about(model: Classifier, title: str) -> Html:
    config = model.config
    labels = f"{len(model.labels):,} labels"
    parts = [config.backbone.name, f"{config.head.kind} head", labels]
    parts += [f"mAP {config.metrics['mAP']:.1f}"] if "mAP" in config.metrics else []
    if model.zero_shot:
        parts.append("any words")
    if config.task == "multi-label" and config.thresholds is None and config.global_threshold is None:
        parts.append("thresholds not calibrated, 0.5 for all")
    return tag("div", tag("h1", title), tag("p", " · ".join(parts)))


def _foot() -> Html:
    command = tag("code", "curl --data-binary @photo.jpg ", tag("span", "ADDRESS"), ROUTE)
    return tag("p", "Pictures stay on the machine that serves this page. For programs: ", command)


def _theme() -> gr.themes.Base:
    """Fonts that every machine has: nothing is fetched."""
    return gr.themes.Default(
        primary_hue=gr.themes.colors.blue,
        neutral_hue=gr.themes.colors.gray,
        font=["system-ui", "sans-serif"],
        font_mono=["ui-monospace", "monospace"],
    )


def _asset(name: str) -> str:
    return files("mldecoder.web").joinpath(name).read_text("utf-8")
