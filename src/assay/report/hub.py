"""The front matter of CARD.md, in the words that model hubs know."""

from __future__ import annotations

from typing import Any

from assay.records.card import Card

_LICENSES = """
apache-2.0 mit openrail bigscience-openrail-m creativeml-openrail-m bigscience-bloom-rail-1.0
bigcode-openrail-m afl-3.0 artistic-2.0 bsl-1.0 bsd bsd-2-clause bsd-3-clause bsd-3-clause-clear c-uda cc
cc0-1.0 cc-by-2.0 cc-by-2.5 cc-by-3.0 cc-by-4.0 cc-by-sa-3.0 cc-by-sa-4.0 cc-by-nc-2.0 cc-by-nc-3.0
cc-by-nc-4.0 cc-by-nd-4.0 cc-by-nc-nd-3.0 cc-by-nc-nd-4.0 cc-by-nc-sa-2.0 cc-by-nc-sa-3.0 cc-by-nc-sa-4.0
cdla-sharing-1.0 cdla-permissive-1.0 cdla-permissive-2.0 wtfpl ecl-2.0 epl-1.0 epl-2.0 etalab-2.0 eupl-1.1
eupl-1.2 agpl-3.0 gfdl gpl gpl-2.0 gpl-3.0 lgpl lgpl-2.1 lgpl-3.0 isc lppl-1.3c ms-pl apple-ascl apple-amlr
mpl-2.0 odc-by odbl openmdw-1.0 openrail++ osl-3.0 postgresql ofl-1.1 ncsa unlicense zlib pddl lgpl-lr
deepfloyd-if-license fair-noncommercial-research-license llama2 llama3 llama3.1 llama3.2 llama3.3 llama4
grok2-community gemma unknown other
"""

_TASKS = """
text-classification token-classification table-question-answering question-answering
zero-shot-classification translation summarization feature-extraction text-generation fill-mask
sentence-similarity text-to-speech text-to-audio automatic-speech-recognition audio-to-audio
audio-classification audio-text-to-text voice-activity-detection depth-estimation image-classification
object-detection image-segmentation text-to-image image-to-text image-to-image image-to-video
unconditional-image-generation video-classification reinforcement-learning robotics tabular-classification
tabular-regression text-to-video image-text-to-text visual-question-answering document-question-answering
zero-shot-image-classification graph-ml mask-generation zero-shot-object-detection text-to-3d image-to-3d
image-feature-extraction video-text-to-text keypoint-detection visual-document-retrieval any-to-any
text-ranking time-series-forecasting other
"""

LICENSES = frozenset(_LICENSES.split())
"""License identifiers that the Hugging Face hub accepts (its documentation, "Licenses")."""

TASKS = frozenset(_TASKS.split())
"""Tasks (`pipeline_tag`) that the Hugging Face hub accepts (its documentation, "Tasks")."""


def front_matter(card: Card) -> str:
    """YAML between the `---` lines: license, task, library and tags as hubs spell them.

    A license that hubs do not know becomes `other` with its name beside it, and a task that they do not know a
    tag, since a hub refuses the whole card for one wrong word.
    """
    import yaml

    model = card.model
    value: dict[str, Any] = {"library_name": "litert", "model_id": model.id}
    tags = ["litert", "tflite"]
    if model.license is not None:
        known = model.license.lower() in LICENSES
        value["license"] = model.license.lower() if known else "other"
        if not known:
            value["license_name"] = model.license
    if model.task is not None:
        if model.task in TASKS:
            value["pipeline_tag"] = model.task
        else:
            tags.append(model.task)
    if model.family is not None:
        tags.append(model.family)
    if model.source_url is not None:
        value["source_url"] = model.source_url
    value["tags"] = list(dict.fromkeys(tags))
    return yaml.safe_dump(value, sort_keys=True, allow_unicode=True, width=10_000).rstrip("\n")
