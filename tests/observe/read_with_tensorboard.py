"""The real TensorBoard reads a run's events: tags, steps and values equal the JSON lines.

usage: read_with_tensorboard.py TEST_OBSERVE    (the test program, which writes the run)
"""
import json
import math
import os
import struct
import subprocess
import sys
import tempfile
import time

try:
    from tensorboard.backend.event_processing import event_accumulator
    from tensorboard.plugins.hparams import metadata as hparams_metadata
except ImportError as error:
    print(f"SKIPPED: the tensorboard package is missing ({error}); tools/python-environment installs it")
    sys.exit(77)

TAGS = {
    ("train", "loss"): "train/loss_smoothed",
    ("train", "learning_rate"): "learning_rate",
    ("train", "gradient_norm"): "Loss_Optimization/global_gradient_norm",
    ("train", "clipped_gradient_norm"): "Loss_Optimization/global_clipped_gradient_norm",
    ("train", "steps_per_second"): "global_step/sec",
    ("train", "epoch"): "epoch",
    ("valid", "bleu"): "valid/BLEU",
    ("valid", "bleu_low"): "valid/BLEU_low",
    ("valid", "bleu_high"): "valid/BLEU_high",
    ("valid", "chrf"): "valid/chrF",
}
# The original system's names of quantities that we do not have.
FORBIDDEN = {"Eval_BLEU_Score", "eval_loss", "train_loss", "Loss_Optimization/loss_scale"}


def as_float32(value):
    return struct.unpack("<f", struct.pack("<f", value))[0]


def expected_curves(path):
    """From the JSON lines: {tag: [(step, value)]} and {text tag: [step]}."""
    curves, texts = {}, {}
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            record = json.loads(line)
            kind, step = record["kind"], record["step"]
            if kind == "sample":
                texts.setdefault(f"sample/{record['index']}", []).append(step)
            if kind == "setup":
                texts.setdefault("setup", []).append(step)
            if kind in ("sample", "event", "setup", "probe"):
                continue
            for key, value in record.items():
                if value in ("NaN", "Infinity", "-Infinity"):
                    value = float(value)
                if key in ("kind", "step", "time") or not isinstance(value, (int, float)):
                    continue
                tag = TAGS.get((kind, key), f"{kind}/{key}")
                curves.setdefault(tag, []).append((step, as_float32(value)))
    # Probes of half a minute each, every 5 steps, as one point a minute: the run's own, sums as rates.
    for tag, value in (("probe/gpu_power_watts", 45.0), ("probe/network_sent_bytes_per_second", 1e6)):
        curves[tag] = [(step, value) for step in range(10, 201, 10)]
    return curves, texts


def check_curve(tag, actual, wanted):
    assert [step for step, _ in actual] == [step for step, _ in wanted], f"{tag}: steps {actual} instead of {wanted}"
    for (step, a), (_, b) in zip(actual, wanted):
        assert a == b or (math.isnan(a) and math.isnan(b)), f"{tag} at step {step}: {a} instead of {b}"


def check_accumulator(directory, curves, texts):
    guidance = {event_accumulator.SCALARS: 0, event_accumulator.TENSORS: 0}
    reader = event_accumulator.EventAccumulator(directory, size_guidance=guidance)
    reader.Reload()
    tags = reader.Tags()
    assert set(tags["scalars"]) == set(curves), (sorted(tags["scalars"]), sorted(curves))
    assert not FORBIDDEN & set(tags["scalars"])
    for tag, wanted in curves.items():
        check_curve(tag, [(event.step, event.value) for event in reader.Scalars(tag)], wanted)
    for tag, steps in texts.items():
        events = reader.Tensors(tag)
        assert [event.step for event in events] == steps, (tag, events)
        text = events[-1].tensor_proto.string_val[0].decode("utf-8")
        if tag == "setup":
            assert "gpu1" in text and "schema" in text, text
            continue
        assert "zwei *Hunde*" in text and "two <b>dogs</b> & a \u2581" in text, text
    config = reader.Tensors("config")[0].tensor_proto.string_val[0]
    assert b"tokens = 25000" in config, config
    check_hyperparameters(reader)


def check_hyperparameters(reader):
    content = reader.SummaryMetadata(hparams_metadata.SESSION_START_INFO_TAG).plugin_data.content
    start = hparams_metadata.parse_session_start_info_plugin_data(content)
    assert start.hparams["batch.tokens"].number_value == 25000
    assert start.hparams["model.preset"].string_value == "base"
    assert start.hparams["joint"].bool_value is True
    content = reader.SummaryMetadata(hparams_metadata.SESSION_END_INFO_TAG).plugin_data.content
    assert hparams_metadata.parse_session_end_info_plugin_data(content).status == 1


def check_data_server(run, curves):
    """What a user's browser sees: TensorBoard's fast reader, over its own interface."""
    from tensorboard import context
    from tensorboard.data import server_ingester
    from tensorboard.util import grpc_util

    try:
        binary = server_ingester.get_server_binary()
    except server_ingester.NoDataServerError as error:
        print(f"SKIPPED the data server: {error}")
        return
    ingester = server_ingester.SubprocessServerDataIngester(
        server_binary=binary,
        logdir=run,
        reload_interval=5,
        channel_creds_type=grpc_util.ChannelCredsType.LOCAL,
        samples_per_plugin={"scalars": 10000},
    )
    ingester.start()
    provider, request = ingester.data_provider, context.RequestContext()
    wanted = set(curves)
    for _ in range(100):
        listed = provider.list_scalars(request, experiment_id="", plugin_name="scalars")
        if len(listed.get("tensorboard", {})) == len(wanted):
            break
        time.sleep(0.1)
    data = provider.read_scalars(request, experiment_id="", plugin_name="scalars", downsample=10000)["tensorboard"]
    assert set(data) == wanted, sorted(data)
    for tag, points in data.items():
        check_curve(tag, [(point.step, point.value) for point in points], curves[tag])
    print(f"the data server read {len(data)} curves")


def main():
    with tempfile.TemporaryDirectory() as run:
        subprocess.run(
            [sys.argv[1], "--gtest_filter=RunLog.writes_a_run_with_a_resume_and_a_rollback"],
            env={**os.environ, "TANDEM_RUN_DIRECTORY": run},
            check=True,
            stdout=subprocess.DEVNULL,
        )
        curves, texts = expected_curves(os.path.join(run, "metrics", "0.jsonl"))
        assert len(curves) == 20 and all(len(points) >= 4 for points in curves.values()), curves.keys()
        check_accumulator(os.path.join(run, "tensorboard"), curves, texts)
        points = sum(len(points) for points in curves.values())
        print(f"TensorBoard read {len(curves)} curves with {points} points and {len(texts)} texts")
        check_data_server(run, curves)


if __name__ == "__main__":
    main()
