"""Write public networks as ONNX files, with samples and a description beside each.

Some are fetched with their weights. The others are architectures of torchvision, timm,
transformers, torchaudio and other libraries with random weights. There, statistics of batch
normalisation come from random samples, and scales that training would raise from zero are raised,
so that every layer matters. What such a network recognises means nothing; its layers, ranges and
byte counts do. Samples are random.

    python examples/model_zoo.py build/zoo                  # all; what is there already is kept
    python examples/model_zoo.py build/zoo --only resnet18 --only segmentation
    python -m tilewright.flows.bench.networks build/zoo --records build/zoo.json

MLPerf Tiny's networks and KWT-1 are TFLite files, which tf2onnx converts; not written here.
The extra `zoo` has the libraries. This file is a list, which is why it is long.
"""

import argparse
import json
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.request import urlopen

import numpy as np
import onnx
from onnxruntime import quantization
from onnxruntime.quantization.shape_inference import quant_pre_process

from tilewright.atomic_write import write_atomically
from tilewright.compiler.frontend.pytorch import export_torch
from tilewright.errors import InputError, TilewrightError, did_you_mean

SEED = 2015
SAMPLES = 40
"""Samples of a network; the quantiser calibrates with half of them and evaluates on the others."""

SITE = "https://raw.githubusercontent.com"
"""Site from which files of a repository are fetched."""

CLASSES = 100
WORDS = 1000
"""Entries of the vocabularies."""

Build = Callable[[], Any]


@dataclass(frozen=True, slots=True)
class ZooNetwork:
    """A network that a library defines.

    Parameters
    ----------
    name : str
        Stem of its files.
    kind : str
        Its task.
    library : str
        One of `LICENCES`, for which the licence is known.
    paper : str
        arXiv number or reference.
    build : callable
        Returns the PyTorch module.
    inputs : mapping
        Argument -> shape with a leading 1; in `words`, the arguments that are indices below
        `WORDS`.
    """

    name: str
    kind: str
    library: str
    paper: str
    build: Build
    inputs: Mapping[str, tuple[int, ...]]
    words: tuple[str, ...] = field(default=())

    @property
    def description(self) -> dict[str, str]:
        """Kind, source and licence, as the bench of networks reads them."""
        paper = f"arXiv:{self.paper}" if self.paper[:4].isdigit() else self.paper
        source = f"{self.library}, random weights; {paper}"
        return {"kind": self.kind, "source": source, "licence": LICENCES[self.library]}


@dataclass(frozen=True, slots=True)
class Quantised:
    """A network in int8, as onnxruntime's quantiser writes it.

    Parameters
    ----------
    network : ZooNetwork
        In float.
    form : str
        One of `FORMS`.
    """

    network: ZooNetwork
    form: str

    @property
    def name(self) -> str:
        """Stem of its files."""
        return f"{self.network.name}_{self.form}"

    @property
    def kind(self) -> str:
        """Its task."""
        return self.network.kind

    @property
    def description(self) -> dict[str, str]:
        """As of the network in float; the source names the quantiser too."""
        about = self.network.description
        return about | {"source": f"{about['source']}; int8 by onnxruntime, `{self.form}`"}


@dataclass(frozen=True, slots=True)
class Published:
    """A file of a public repository, with its weights.

    Parameters
    ----------
    name, kind : str
        As of `ZooNetwork`.
    repository, commit, path : str
        Of the file, at GitHub.
    licence : str
        SPDX name.
    sha256 : str
        Of its bytes.
    states : mapping
        Input -> the output that it takes from the previous sample.
    """

    name: str
    kind: str
    repository: str
    commit: str
    path: str
    licence: str
    sha256: str
    states: Mapping[str, str] = field(default_factory=dict)

    @property
    def description(self) -> dict[str, Any]:
        """Kind, source, licence and states, as the bench of networks reads them."""
        source = f"https://github.com/{self.repository}, {self.path}"
        found = {"kind": self.kind, "source": source, "licence": self.licence}
        return {**found, "states": dict(self.states)} if self.states else found


LICENCES = {
    "torch": "BSD-3-Clause",
    "torchvision": "BSD-3-Clause",
    "torchaudio": "BSD-2-Clause",
    "timm": "Apache-2.0",
    "transformers": "Apache-2.0",
    "segmentation_models_pytorch": "MIT",
    "pytorch_tcn": "MIT",
}

FORMS: Mapping[str, tuple[str, str, bool]] = {
    "qdq": ("QDQ", "QInt8", True),
    "qdq_uint8": ("QDQ", "QUInt8", False),
    "qoperator": ("QOperator", "QInt8", False),
    "dynamic": ("", "QInt8", False),
    "dynamic_uint8": ("", "QUInt8", False),
}
"""Form of an int8 network -> format, type of activations, whether channels have own scales.

Dynamic quantisation has no format; the type is that of the weights.
"""

CLASSIFICATION = "image classification"


def published() -> Iterator[Published]:
    """Networks with their weights."""
    faces = (
        "Linzaer/Ultra-Light-Fast-Generic-Face-Detector-1MB",
        "dffdddda9794a50607cba8f318507a28c1c27cab",
    )
    tiny = "mlcommons/tiny_results_v0.7", "64623f41b6721bdff6d0133a524c63a003123b3b"
    tools = (
        "STMicroelectronics/stm32ai-modelzoo-services",
        "46924c0a8b7617672c12895fa76b0ee202738355",
    )
    dtln = "breizhn/DTLN", "1de1f15a8b5b7e1c44905618ff2ef70ca8277fbc"
    yield Published(
        "ultraface_rfb_320", "face detection", *faces,
        "models/onnx/version-RFB-320_without_postprocessing.onnx",
        "MIT",
        "d7c687949526065ab6a192fdf993360045ce27b0fabf7c9fca5c2437b786b495",
    )  # fmt: skip
    yield Published(
        "ultraface_slim_320", "face detection", *faces,
        "models/onnx/version-slim-320_without_postprocessing.onnx",
        "MIT",
        "6e12bb34a36eb17b86d2b76b79c9cd20f342a59ee737d2123a814ce6f532932b",
    )  # fmt: skip
    yield Published(
        "dtln1", "speech enhancement", *dtln,
        "pretrained_model/model_1.onnx",
        "MIT",
        "22b91cae3855e5a0620e66a917ca6c82c58db0e842c770f58d86751c5e8d4ae3",
        {"input_3": "tf_op_layer_stack_2"},
    )  # fmt: skip
    yield Published(
        "dtln2", "speech enhancement", *dtln,
        "pretrained_model/model_2.onnx",
        "MIT",
        "e20c92f9233fccf29cddf86970d0d0161a03aebccc26d6f4d5639c4d5ec2e639",
        {"input_5": "tf_op_layer_stack_5"},
    )  # fmt: skip
    yield Published(
        "st_mobilenet_v2_035", "image classification", *tools,
        "common/onnx_utils/sample_models/mobilenet_v2_0.35_128_tfs_channel_first.onnx",
        "Apache-2.0",
        "17510359679c8e131f32dbde16d6fd7dff27b99b50a7d23462ad2710ad76fe48",
    )  # fmt: skip
    yield Published(
        "st_mobilenet_v2_050", "image classification", *tools,
        "tutorials/notebooks/models/mobilenet_v2_128_0.5.onnx",
        "Apache-2.0",
        "1b2baaf207285807bc5bb04dd1bebe786b02ca69322938be6fb3494ec41d8aee",
    )  # fmt: skip
    yield Published(
        "st_ssd", "object detection", *tools,
        "common/onnx_utils/sample_models/st_ssd_mobilenet_v1_025_256.onnx",
        "Apache-2.0",
        "70674aae051a1c3ca21fb127105eb42df3aca9b805b216c14f50604bc7b5a66d",
    )  # fmt: skip
    yield Published(
        "st_yamnet_256", "audio events", *tools,
        "common/onnx_utils/sample_models/yamnet_256_64x96_tl.onnx",
        "Apache-2.0",
        "235f9325e8c01351232fa6f1857d4b2bb096d98a654f786ab42dd13a12d59bcf",
    )  # fmt: skip
    yield Published(
        "alibaba_ad", "anomaly detection", *tiny,
        "open/Alibaba/code/ad/sinian/ad_model/model_ad.onnx",
        "Apache-2.0",
        "9785f8bf4ecfaca47251a756f6fe37322ac9a0245b1ced8ec026b7104459b95c",
    )  # fmt: skip
    yield Published(
        "alibaba_ic", "image classification", *tiny,
        "open/Alibaba/code/ic/sinian/ic_model/model_ic.onnx",
        "Apache-2.0",
        "0522783e96e6858e527120a94559094a5213f4cb732c324cb26d1c533b6184a6",
    )  # fmt: skip
    yield Published(
        "alibaba_kws", "keyword spotting", *tiny,
        "open/Alibaba/code/kws/sinian/kws_model/model_kws.onnx",
        "Apache-2.0",
        "d08bb356dcf161b6d904b9a6a363244b4261ede54af08ac5796227b2cb1eeb5a",
    )  # fmt: skip
    yield Published(
        "alibaba_vww", "visual wake words", *tiny,
        "open/Alibaba/code/vww/sinian/vww_model/model_vww.onnx",
        "Apache-2.0",
        "5e1fd852fc2fef68aa12b505357942c8d5b4efcbc291fa6bd1db6e038d5930a2",
    )  # fmt: skip
    yield Published(
        "mnist8", "image classification", "fastmachinelearning/qonnx",
        "cc2ec17b7d6a60c93f180f4cb2666dd89b1b64a1",
        "src/qonnx/data/onnx/mnist-conv/model.onnx",
        "MIT",
        "2f06e72de813a8635c9bc0397ac447a601bdbfa7df4bebc278723b958831c9bf",
    )  # fmt: skip
    yield Published(
        "finn_kws_w3a3", "keyword spotting", *tiny,
        "open/hls4ml-finn/code/kws/KWS-W3A3/training/training_checkpoint/"
        "QONNX_model.onnx",
        "Apache-2.0",
        "00304f949e07e2c334e6f12728b6641874515c31de351fb20010df970880e327",
    )  # fmt: skip


def torchvision_classifiers() -> Iterator[ZooNetwork]:
    """Image classifiers of torchvision: name, side of the images, paper."""
    listed = (
        ("squeezenet1_1", 64, "1602.07360"),
        ("shufflenet_v2_x0_5", 64, "1807.11164"),
        ("shufflenet_v2_x1_0", 224, "1807.11164"),
        ("mobilenet_v2", 64, "1801.04381"),
        ("mnasnet0_5", 64, "1807.11626"),
    )
    for name, side, paper in listed:
        build = partial(_call, "torchvision.models", name, num_classes=CLASSES)
        yield ZooNetwork(
            name, CLASSIFICATION, "torchvision", paper, build, {"x": (1, 3, side, side)}
        )


def timm_classifiers() -> Iterator[ZooNetwork]:
    """Image classifiers of timm: name, side of the images, paper."""
    listed = (
        ("mobilenetv1_100", 64, "1704.04861"),
        ("efficientnet_lite0", 64, "1905.11946"),
        ("tinynet_e", 64, "2010.14819"),
        ("lcnet_050", 64, "2109.15099"),
        ("edgenext_xx_small", 64, "2206.10589"),
        ("mobilevit_xxs", 64, "2110.02178"),
    )
    for name, side, paper in listed:
        build = partial(_call, "timm", "create_model", name, num_classes=CLASSES)
        yield ZooNetwork(name, CLASSIFICATION, "timm", paper, build, {"x": (1, 3, side, side)})


def detectors() -> Iterator[ZooNetwork]:
    """Object detectors up to the heads' outputs: what follows chooses boxes, on the host."""
    image = {"x": (1, 3, 128, 128)}
    yield ZooNetwork(
        "ssdlite320_mobilenet_v3_large", "object detection", "torchvision", "1801.04381",
        partial(_torchvision_detector, "ssdlite320_mobilenet_v3_large", num_classes=21), image,
    )  # fmt: skip
    yield ZooNetwork(
        "yolos_tiny", "object detection", "transformers", "2106.00666",
        partial(
            _transformer, "Yolos", "YolosForObjectDetection", ("logits", "pred_boxes"),
            hidden_size=192, num_hidden_layers=4, num_attention_heads=3, intermediate_size=768,
            image_size=[96, 96], num_detection_tokens=20,
        ),
        {"pixel_values": (1, 3, 96, 96)},
    )  # fmt: skip


def segmentations() -> Iterator[ZooNetwork]:
    """Networks that label each pixel."""
    for name, paper in (("lraspp_mobilenet_v3_large", "1905.02244"),):
        build = partial(_torchvision_segmenter, name, num_classes=21)
        yield ZooNetwork(name, "segmentation", "torchvision", paper, build, {"x": (1, 3, 96, 96)})
    library = "segmentation_models_pytorch"
    for name, paper in (("Unet", "1505.04597"), ("PSPNet", "1612.01105")):
        build = partial(
            _call, library, name, encoder_name="mobilenet_v2", encoder_weights=None, classes=5
        )
        stem = f"{name.lower()}_mobilenet_v2"
        yield ZooNetwork(stem, "segmentation", library, paper, build, {"x": (1, 3, 96, 96)})


def images_to_images() -> Iterator[ZooNetwork]:
    """Super-resolution, depth, poses and autoencoders."""
    small = {"x": (1, 1, 48, 48)}
    yield ZooNetwork("espcn", "super-resolution", "torch", "1609.05158", _espcn, small)
    yield ZooNetwork("srcnn", "super-resolution", "torch", "1501.00092", _srcnn, small)
    yield ZooNetwork(
        "swin2sr", "super-resolution", "transformers", "2209.11345",
        partial(
            _transformer, "Swin2SR", "Swin2SRForImageSuperResolution", ("reconstruction",),
            image_size=32, embed_dim=60, depths=[2, 2], num_heads=[6, 6], upscale=2,
            upsampler="pixelshuffledirect",
        ),
        {"pixel_values": (1, 3, 32, 32)},
    )  # fmt: skip
    yield ZooNetwork(
        "glpn", "depth estimation", "transformers", "2201.07436",
        partial(_transformer, "GLPN", "GLPNForDepthEstimation", ("predicted_depth",)),
        {"pixel_values": (1, 3, 64, 64)},
    )  # fmt: skip
    yield ZooNetwork(
        "vitpose", "pose estimation", "transformers", "2204.12484",
        partial(
            _transformer, "VitPose", "VitPoseForPoseEstimation", ("heatmaps",), num_labels=17,
            backbone_config=partial(
                _call, "transformers", "VitPoseBackboneConfig", hidden_size=192,
                num_hidden_layers=4, num_attention_heads=3, image_size=[96, 64], out_indices=[4],
            ),
        ),
        {"pixel_values": (1, 3, 96, 64)},
    )  # fmt: skip
    yield ZooNetwork(
        "convolutional_autoencoder", "autoencoder", "torch", "doi:10.1126/science.1127647",
        _autoencoder, {"x": (1, 1, 32, 32)},
    )  # fmt: skip


def speech() -> Iterator[ZooNetwork]:
    """Keyword spotting, recognition, enhancement, and synthesis."""
    yield ZooNetwork(
        "tc_resnet8", "keyword spotting", "torch", "1904.03814", _tc_resnet, {"x": (1, 40, 98)}
    )
    yield ZooNetwork(
        "ds_cnn", "keyword spotting", "torch", "1711.07128", _ds_cnn, {"x": (1, 1, 49, 10)}
    )
    yield ZooNetwork(
        "ast_tiny", "keyword spotting", "transformers", "2104.01778",
        partial(
            _transformer, "AST", "ASTForAudioClassification", ("logits",), hidden_size=192,
            num_hidden_layers=4, num_attention_heads=3, intermediate_size=768, max_length=128,
            num_mel_bins=64,
        ),
        {"input_values": (1, 128, 64)},
    )  # fmt: skip
    recognition = "speech recognition"
    yield ZooNetwork(
        "deepspeech", recognition, "torchaudio", "1412.5567",
        partial(_call, "torchaudio.models", "DeepSpeech", 26, 256), {"x": (1, 1, 50, 26)},
    )  # fmt: skip
    yield ZooNetwork(
        "wav2vec2_tiny", recognition, "transformers", "2006.11477",
        partial(
            _transformer, "Wav2Vec2", "Wav2Vec2ForCTC", ("logits",), hidden_size=128,
            num_hidden_layers=2, num_attention_heads=2, intermediate_size=512,
            conv_dim=(64,) * 7, num_conv_pos_embeddings=16, num_conv_pos_embedding_groups=4,
        ),
        {"input_values": (1, 8000)},
    )  # fmt: skip
    yield ZooNetwork(
        "whisper_encoder", recognition, "transformers", "2212.04356", _whisper_encoder,
        {"input_features": (1, 80, 200)},
    )  # fmt: skip
    enhancement = "speech enhancement"
    yield ZooNetwork(
        "conv_tasnet", enhancement, "torchaudio", "1809.07454",
        partial(
            _call, "torchaudio.models", "ConvTasNet", num_sources=1, enc_num_feats=128,
            msk_num_feats=64, msk_num_hidden_feats=128, msk_num_layers=4, msk_num_stacks=2,
        ),
        {"x": (1, 1, 4000)},
    )  # fmt: skip
    yield ZooNetwork(
        "gru_mask", enhancement, "torch", "2005.07551", partial(_recurrent_mask, "GRU"),
        {"x": (1, 50, 129)},
    )  # fmt: skip
    yield ZooNetwork(
        "lstm_mask", enhancement, "torch", "2005.07551", partial(_recurrent_mask, "LSTM"),
        {"x": (1, 50, 129)},
    )  # fmt: skip
    yield ZooNetwork(
        "hifigan", "speech synthesis", "transformers", "2010.05646",
        partial(
            _transformer, "SpeechT5HifiGan", "SpeechT5HifiGan", (), upsample_initial_channel=64
        ),
        {"spectrogram": (1, 32, 80)},
    )  # fmt: skip


def texts() -> Iterator[ZooNetwork]:
    """Transformers of words."""
    small = {"hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2}
    wide = {**small, "intermediate_size": 512}
    for name, family, task, paper, sizes in (
        ("bert_tiny", "Bert", "SequenceClassification", "1908.08962", wide),
        ("albert_tiny", "Albert", "SequenceClassification", "1909.11942",
         {**wide, "embedding_size": 64}),
        ("electra_tiny", "Electra", "SequenceClassification", "2003.10555", wide),
        ("roberta_tiny", "Roberta", "SequenceClassification", "1907.11692", wide),
        ("squeezebert_tiny", "SqueezeBert", "SequenceClassification", "2006.11316",
         {**wide, "embedding_size": 128}),
        ("distilbert_tiny", "DistilBert", "SequenceClassification", "1910.01108",
         {"dim": 128, "n_layers": 2, "n_heads": 2, "hidden_dim": 512}),
        ("gpt2_tiny", "GPT2", "SequenceClassification", "GPT-2, 2019",
         {"n_embd": 128, "n_layer": 2, "n_head": 2, "pad_token_id": 0}),
    ):  # fmt: skip
        build = partial(
            _transformer, family, f"{family}For{task}", ("logits",), vocab_size=WORDS, **sizes
        )
        inputs = {"input_ids": (1, 32)}
        yield ZooNetwork(name, "language", "transformers", paper, build, inputs, ("input_ids",))


def tables() -> Iterator[ZooNetwork]:
    """Time series, anomalies and recommendation."""
    yield ZooNetwork(
        "tcn", "time series", "pytorch_tcn", "1803.01271",
        partial(_call, "pytorch_tcn", "TCN", 8, [32, 32, 32, 32], kernel_size=3),
        {"x": (1, 8, 128)},
    )  # fmt: skip
    yield ZooNetwork(
        "patchtst", "time series", "transformers", "2211.14730",
        partial(
            _transformer, "PatchTST", "PatchTSTForPrediction", ("prediction_outputs",),
            num_input_channels=4, context_length=128, prediction_length=24, d_model=64,
            num_hidden_layers=2, patch_length=16, patch_stride=16,
        ),
        {"past_values": (1, 128, 4)},
    )  # fmt: skip
    yield ZooNetwork(
        "patchtsmixer", "time series", "transformers", "2306.09364",
        partial(
            _transformer, "PatchTSMixer", "PatchTSMixerForPrediction", ("prediction_outputs",),
            num_input_channels=4, context_length=128, prediction_length=24, d_model=32,
        ),
        {"past_values": (1, 128, 4)},
    )  # fmt: skip
    layers = {
        "dense_autoencoder": ("anomaly detection", 640, (128,) * 4 + (8,) + (128,) * 4 + (640,)),
        "dlrm_bottom": ("recommendation", 13, (512, 256, 64, 16)),
        "dlrm_top": ("recommendation", 367, (512, 256, 1)),
    }
    papers = {"anomaly detection": "2106.07597", "recommendation": "1906.00091"}
    for name, (kind, inputs, widths) in layers.items():
        build = partial(_call, "torchvision.ops", "MLP", inputs, list(widths))
        yield ZooNetwork(name, kind, "torchvision", papers[kind], build, {"x": (1, inputs)})


def quantised(found: Mapping[str, ZooNetwork]) -> Iterator[Quantised]:
    """Networks in int8, from those in float by name."""
    forms = {
        "qdq": "mobilenet_v2 efficientnet_lite0 ds_cnn bert_tiny unet_mobilenet_v2 srcnn",
        "qdq_uint8": "squeezenet1_1 tc_resnet8 shufflenet_v2_x0_5 tcn dlrm_top",
        "qoperator": "mobilenetv1_100 convolutional_autoencoder",
        "dynamic": "bert_tiny distilbert_tiny lstm_mask dlrm_top",
        "dynamic_uint8": "roberta_tiny ds_cnn mobilenet_v2",
    }
    for form, names in forms.items():
        for name in names.split():
            yield Quantised(found[name], form)


def networks() -> tuple[ZooNetwork | Quantised | Published, ...]:
    """Return all networks; no library is imported."""
    groups = (
        *(torchvision_classifiers, timm_classifiers, detectors, segmentations),
        *(images_to_images, speech, texts, tables),
    )
    found = {network.name: network for group in groups for network in group()}
    return (*published(), *found.values(), *quantised(found))


def _call(module: str, name: str, *arguments: Any, **options: Any) -> Any:
    """Call what a library has by this name."""
    return getattr(import_module(module), name)(*arguments, **options)


def _outputs_of(module: Any, chosen: Callable[[Any], Any]) -> Any:
    """Return a module that gives a part of what another one gives."""
    nn = import_module("torch.nn")

    class Part(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = module

        def forward(self, x: Any) -> Any:
            return chosen(self.inner(x))

    return Part()


def _transformer(family: str, model: str, outputs: tuple[str, ...], **options: Any) -> Any:
    """Return a model of transformers with an own configuration; `outputs` are kept."""
    library = import_module("transformers")
    options = {name: one() if isinstance(one, partial) else one for name, one in options.items()}
    configuration = getattr(library, f"{family}Config")(**options)
    configuration._attn_implementation = "eager"
    made = getattr(library, model)(configuration)
    if not outputs:
        return made
    return _outputs_of(made, lambda found: tuple(getattr(found, name) for name in outputs))


def _whisper_encoder() -> Any:
    library = import_module("transformers")
    configuration = library.WhisperConfig(
        d_model=128, encoder_layers=2, encoder_attention_heads=2, encoder_ffn_dim=512,
        max_source_positions=100,
    )  # fmt: skip
    encoder = import_module("transformers.models.whisper.modeling_whisper").WhisperEncoder
    return _outputs_of(encoder(configuration), lambda found: found.last_hidden_state)


def _torchvision_segmenter(name: str, **options: Any) -> Any:
    made = _call(
        "torchvision.models.segmentation", name, weights=None, weights_backbone=None, **options
    )
    return _outputs_of(made, lambda found: found["out"])


def _torchvision_detector(name: str, **options: Any) -> Any:
    """Return backbone and heads; a detector's own call also resizes images and chooses boxes."""
    nn = import_module("torch.nn")
    made = _call(
        "torchvision.models.detection", name, weights=None, weights_backbone=None, **options
    )

    class TupleHeads(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.backbone, self.head = made.backbone, made.head

        def forward(self, x: Any) -> Any:
            return tuple(self.head(list(self.backbone(x).values())).values())

    return TupleHeads()


def _espcn() -> Any:
    nn = import_module("torch.nn")
    return nn.Sequential(
        *(nn.Conv2d(1, 64, 5, padding=2), nn.Tanh(), nn.Conv2d(64, 32, 3, padding=1), nn.Tanh()),
        *(nn.Conv2d(32, 9, 3, padding=1), nn.PixelShuffle(3)),
    )


def _srcnn() -> Any:
    nn = import_module("torch.nn")
    return nn.Sequential(
        *(nn.Conv2d(1, 64, 9, padding=4), nn.ReLU(), nn.Conv2d(64, 32, 1), nn.ReLU()),
        nn.Conv2d(32, 1, 5, padding=2),
    )


def _autoencoder() -> Any:
    nn = import_module("torch.nn")
    return nn.Sequential(
        *(nn.Conv2d(1, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU()),
        *(nn.ConvTranspose2d(32, 16, 2, 2), nn.ReLU(), nn.ConvTranspose2d(16, 1, 2, 2)),
        nn.Sigmoid(),
    )


def _tc_resnet() -> Any:
    """TC-ResNet8: convolutions along time, the coefficients are channels."""
    nn = import_module("torch.nn")

    class ResidualBlock(nn.Module):
        def __init__(self, inputs: int, outputs: int) -> None:
            super().__init__()
            self.body = nn.Sequential(
                *(nn.Conv1d(inputs, outputs, 9, 2, 4, bias=False), nn.BatchNorm1d(outputs)),
                *(nn.ReLU(), nn.Conv1d(outputs, outputs, 9, 1, 4, bias=False)),
                nn.BatchNorm1d(outputs),
            )
            self.shortcut = nn.Sequential(
                nn.Conv1d(inputs, outputs, 1, 2, bias=False), nn.BatchNorm1d(outputs), nn.ReLU()
            )

        def forward(self, x: Any) -> Any:
            return (self.body(x) + self.shortcut(x)).relu()

    return nn.Sequential(
        *(
            nn.Conv1d(40, 16, 3, 1, 1, bias=False),
            ResidualBlock(16, 24),
            ResidualBlock(24, 32),
            ResidualBlock(32, 48),
        ),
        *(nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(48, 12)),
    )


def _ds_cnn() -> Any:
    nn = import_module("torch.nn")
    parts = [nn.Conv2d(1, 64, (10, 4), 2, (5, 1), bias=False), nn.BatchNorm2d(64), nn.ReLU()]
    for _ in range(4):
        for kernel, padding, groups in ((3, 1, 64), (1, 0, 1)):
            window = nn.Conv2d(64, 64, kernel, 1, padding, groups=groups, bias=False)
            parts += [window, nn.BatchNorm2d(64), nn.ReLU()]
    return nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 12))


def _recurrent_mask(cell: str) -> Any:
    """Two recurrent layers that estimate a mask of a spectrum, as DTLN's first stage does."""
    nn = import_module("torch.nn")

    class Mask(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cells = getattr(nn, cell)(129, 128, 2, batch_first=True)
            self.dense = nn.Linear(128, 129)

        def forward(self, x: Any) -> Any:
            return self.dense(self.cells(x)[0]).sigmoid() * x

    return Mask()


def draw(
    inputs: Mapping[str, Sequence[int]], words: Sequence[str] = (), count: int = SAMPLES
) -> dict[str, np.ndarray]:
    """Return samples by input, [count, ...]: words, or smooth noise.

    Natural images and sounds hold most of their power in coarse structure.
    """
    random = np.random.default_rng(SEED)
    found = {}
    for name, (_, *shape) in inputs.items():
        if name in words:
            found[name] = random.integers(1, WORDS, (count, *shape))
            continue
        noise = random.normal(0, 1, (count, *shape))
        for axis in range(max(1, len(shape) - 1), len(shape) + 1):
            for _ in range(2 * (shape[axis - 1] > 16)):
                noise = (noise + np.roll(noise, 1, axis) + np.roll(noise, 2, axis)) / 3
        found[name] = (noise / noise.std()).astype(np.float32)
    return found


def awaken(module: Any, samples: Sequence[Any]) -> None:
    """Make a random network's activations sensible.

    Scales of branches start at zero, or near it, in many libraries, and training raises them: here
    they are raised at once. Batch normalisation takes its statistics from the samples.
    """
    torch = import_module("torch")
    norms = [
        part for part in module.modules() if isinstance(part, torch.nn.modules.batchnorm._BatchNorm)
    ]
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            scale = parameter.dim() == 1 or any(part in name for part in ("gamma", "layer_scale"))
            if scale and "bias" not in name and parameter.abs().max() < 1e-3:
                parameter.fill_(0.5)
        module.eval()
        for part in norms:
            part.reset_running_stats()
            part.momentum = None  # the mean of all batches
            part.train()
        module(*samples)
        module.eval()


def export(network: ZooNetwork) -> tuple[bytes, dict[str, np.ndarray]]:
    """Return a network as ONNX, and its samples by input.

    Raises
    ------
    TilewrightError
        If it cannot be exported.
    """
    torch = import_module("torch")
    torch.manual_seed(SEED)
    samples = draw(network.inputs, network.words)
    module = network.build()
    batch = [torch.from_numpy(array[:8]) for array in samples.values()]
    awaken(module, batch)
    data = export_torch(module, tuple(one[:1] for one in batch))
    return data, dict(zip(input_shapes(data), samples.values(), strict=True))


class SampleReader(quantization.CalibrationDataReader):
    """Samples, for onnxruntime's quantiser."""

    def __init__(self, samples: Mapping[str, np.ndarray]) -> None:
        count = SAMPLES // 2
        self.batches = iter(
            [{name: array[i : i + 1] for name, array in samples.items()} for i in range(count)]
        )

    def get_next(self) -> dict[str, np.ndarray] | None:
        return next(self.batches, None)


def quantise(network: Quantised) -> tuple[bytes, dict[str, np.ndarray]]:
    """Return a network in int8 as ONNX, and its samples by input.

    Raises
    ------
    TilewrightError
        If it cannot be exported.
    """
    data, samples = export(network.network)
    form, kind, per_channel = FORMS[network.form]
    with TemporaryDirectory() as folder:
        source, prepared, target = (Path(folder) / f"{stage}.onnx" for stage in "abc")
        source.write_bytes(data)
        quant_pre_process(source, prepared, skip_symbolic_shape=True)
        if form:
            quantization.quantize_static(
                prepared,
                target,
                SampleReader(samples),
                quant_format=quantization.QuantFormat[form],
                activation_type=quantization.QuantType[kind],
                weight_type=quantization.QuantType.QInt8,
                per_channel=per_channel,
            )
        else:
            quantization.quantize_dynamic(
                prepared, target, weight_type=quantization.QuantType[kind]
            )
        return target.read_bytes(), samples


def fetch(network: Published) -> tuple[bytes, dict[str, np.ndarray]]:
    """Return the bytes of a published network, and random samples by input.

    Raises
    ------
    InputError
        If the bytes are not those that are listed.
    """
    address = f"{SITE}/{network.repository}/{network.commit}/{network.path}"
    with urlopen(address, timeout=60) as answer:
        data = answer.read()
    if (found := sha256(data).hexdigest()) != network.sha256:
        raise InputError(
            f"`{address}`: expected SHA-256 {network.sha256}, got {found}; fetch it again, or do "
            "without this network"
        )
    shapes = input_shapes(data)
    return data, draw({name: shapes[name] for name in shapes if name not in network.states})


def input_shapes(data: bytes) -> dict[str, list[int]]:
    """Return the shapes of a model's inputs by name; open dimensions are 1."""
    graph = onnx.load_from_string(data).graph
    constants = {tensor.name for tensor in graph.initializer}
    return {
        value.name: [max(1, one.dim_value) for one in value.type.tensor_type.shape.dim]
        for value in graph.input
        if value.name not in constants
    }


def write(network: ZooNetwork | Quantised | Published, folder: Path) -> int:
    """Write the ONNX file, samples and description of a network; return the bytes of the first.

    Raises
    ------
    TilewrightError
        If it cannot be exported, or is not the one that is listed.
    OSError
        If it cannot be fetched.
    """
    if isinstance(network, Published):
        data, drawn = fetch(network)
    else:
        data, drawn = export(network) if isinstance(network, ZooNetwork) else quantise(network)
    samples: dict[str, Any] = {**drawn}
    with open(folder / f"{network.name}.npz", "wb") as file:
        np.savez_compressed(file, **samples)
    (folder / f"{network.name}.json").write_text(json.dumps(network.description) + "\n")
    write_atomically(folder / f"{network.name}.onnx", data)  # last: it marks the network as done
    return len(data)


def main(arguments: Sequence[str] | None = None) -> int:
    """Write networks; return how many failed, at most 1."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path, nargs="?", help="folder to write")
    parser.add_argument("--only", action="append", default=[], metavar="NAME|KIND")
    parser.add_argument("--list", action="store_true", help="list the networks and stop")
    options = parser.parse_args(arguments)
    everything = networks()
    known = {word for one in everything for word in (one.name, one.kind)}
    for word in options.only:
        if word not in known:
            parser.error(f"unknown network or kind `{word}`" + did_you_mean(word, sorted(known)))
    chosen = [
        one for one in everything if not options.only or {one.name, one.kind} & set(options.only)
    ]
    if options.list:
        for one in chosen:
            about = one.description
            print(f"{one.name}: {about['kind']}; {about['source']}; {about['licence']}")
        return 0
    if options.folder is None:
        parser.error("expected a folder to write, got none")
    options.folder.mkdir(parents=True, exist_ok=True)
    failed = 0
    for position, network in enumerate(chosen, 1):
        begin = f"{position} of {len(chosen)}: {network.name}"
        if (options.folder / f"{network.name}.onnx").is_file():
            print(f"{begin}: is there")
            continue
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                print(f"{begin}: {write(network, options.folder):,} bytes", flush=True)
        except Exception as problem:  # a library's own; the other networks go on
            own = isinstance(problem, TilewrightError)
            text = str(problem) if own else f"{type(problem).__name__}: {problem}"
            print(f"{begin}: not written: {' '.join(text.split())[:300]}", file=sys.stderr)
            failed += 1
    print(f"{len(chosen) - failed} of {len(chosen)} networks are in `{options.folder}`")
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main())
