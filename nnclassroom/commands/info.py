"""`nncourse info`: this machine."""

from argparse import ArgumentParser, Namespace


def add_options(parser: ArgumentParser) -> None:
    """There are none."""


def run(options: Namespace) -> int:
    from cuda_on_cpu import emulate
    from nnclassroom.handing_out import update
    from nnclassroom.timing import limits_in_words
    from nncourse import device, language

    for name in ("cpu", "gpu") if device.gpu_available() else ("cpu",):
        print(f"{name.upper()}: {device.describe(name)}")
        print(f"     {limits_in_words(name)}")
    if not device.gpu_available():
        print(f"GPU: none. {device.why_no_gpu()}")
    print(f"CUDA emulator: {emulate.why_not() or 'ready'}")
    if handed_out := update.read_manifest(language.ROOT):
        print(f"hand-out: course {handed_out['course']}")
    print("versions: " + ", ".join(f"{name} {version}" for name, version in device.versions().items()))
    return 0
