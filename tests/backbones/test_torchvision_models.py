import pytest
import torch
import torchvision

from mldecoder.backbones import create_backbone, wrap_backbone
from mldecoder.errors import BackboneError

from .checks import check_shapes_and_gradients

AUX = ("googlenet", "inception_v3")  # these warn about their slow initialisation


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("resnet18", (2, 512, 2, 2)),
        ("vit_b_32", (2, 4, 768)),
        ("swin_t", (2, 768, 2, 2)),
        ("swin_v2_t", (2, 768, 2, 2)),
        ("convnext_tiny", (2, 768, 2, 2)),
        ("efficientnet_b0", (2, 1280, 2, 2)),
        ("densenet121", (2, 1024, 2, 2)),
        ("mobilenet_v2", (2, 1280, 2, 2)),
        ("mobilenet_v3_small", (2, 576, 2, 2)),
        ("mnasnet0_5", (2, 1280, 2, 2)),
        ("regnet_y_400mf", (2, 440, 2, 2)),
        ("shufflenet_v2_x0_5", (2, 1024, 2, 2)),
        ("squeezenet1_1", (2, 512, 3, 3)),
        ("googlenet", (2, 1024, 2, 2)),
        ("vgg11", (2, 512, 2, 2)),
        ("alexnet", (2, 256, 1, 1)),
    ],
)
def test_a_torchvision_model_yields_a_map_or_tokens_and_gradients_reach_every_parameter(
    name: str, shape: tuple[int, ...]
) -> None:
    backbone = create_backbone(f"torchvision/{name}", img_size=64)
    assert check_shapes_and_gradients(backbone).shape == shape


@pytest.mark.parametrize(("name", "size"), [("maxvit_t", 224), ("inception_v3", 96)])
def test_the_two_larger_torchvision_families_work_too(name: str, size: int) -> None:
    check_shapes_and_gradients(create_backbone(f"torchvision/{name}", img_size=size))


@pytest.mark.slow
@pytest.mark.parametrize("name", torchvision.models.list_models(module=torchvision.models))
def test_every_classification_model_of_torchvision_belongs_to_a_family(name: str) -> None:
    with torch.device("cpu" if name.startswith("regnet") else "meta"):  # regnets compute while they are built
        options = {"init_weights": False} if name in AUX else {}
        model = torchvision.models.get_model(name, weights=None, **options)
        backbone = wrap_backbone(model)
    assert backbone.name == f"torchvision/{name}"


@pytest.mark.parametrize("name", ["resnet18", "densenet121", "efficientnet_b0", "swin_t", "mobilenet_v2"])
def test_pooling_the_features_gives_what_torchvision_pools(name: str) -> None:
    own = torchvision.models.get_model(name, weights=None, num_classes=7).eval()
    x = torch.randn(1, 3, 64, 64)
    with torch.no_grad():
        expected = own(x)
        last = own.fc if name == "resnet18" else own.head if name == "swin_t" else own.classifier
        backbone = wrap_backbone(own).eval()
        features = backbone(x)
        assert backbone.name == f"torchvision/{name}"
        torch.testing.assert_close(last(features.mean(dim=(2, 3))), expected, rtol=1e-4, atol=1e-5)


def test_convnext_keeps_the_norm_of_its_classifier() -> None:
    own = torchvision.models.convnext_tiny(weights=None).eval()
    norm, x = own.classifier[0], torch.randn(1, 3, 64, 64)
    with torch.no_grad():
        torch.nn.init.normal_(norm.weight)
        expected = norm(own.features(x))
        torch.testing.assert_close(wrap_backbone(own).eval()(x), expected)


def test_the_class_token_of_a_vision_transformer_is_kept_on_demand() -> None:
    own = torchvision.models.VisionTransformer(
        image_size=32, patch_size=16, num_layers=1, num_heads=2, hidden_dim=16, mlp_dim=32, num_classes=5
    ).eval()
    x, heads = torch.randn(2, 3, 32, 32), own.heads
    with torch.no_grad():
        expected = own(x)
        backbone = wrap_backbone(own, keep_prefix_tokens=True).eval()
        assert backbone.preprocessing.size == (32, 32)
        torch.testing.assert_close(heads(backbone(x)[:, 0]), expected)
    check_shapes_and_gradients(backbone)


def test_torchvision_preprocessing_is_that_of_the_best_weights() -> None:
    own = create_backbone("torchvision/resnet18").preprocessing
    assert (own.size, own.mean, own.interpolation, own.crop_pct) == (
        (224, 224),
        (0.485, 0.456, 0.406),
        "bilinear",
        0.875,
    )


def test_what_torchvision_cannot_do_is_said() -> None:
    with pytest.raises(BackboneError, match="take 3 channels, got in_chans=1"):
        create_backbone("torchvision/resnet18", in_chans=1)
    with pytest.raises(BackboneError, match="square pictures"):
        create_backbone("torchvision/vit_b_32", img_size=(64, 96))
    with pytest.raises(BackboneError, match=r"torchvision models must be one of .* got FCN"):
        wrap_backbone(torchvision.models.segmentation.fcn_resnet50(weights=None, weights_backbone=None))
