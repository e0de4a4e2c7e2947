#!/usr/bin/env python3
"""Writes the golden files of the model test: a tiny Transformer in PyTorch, run in float64.

It is written the plain way, padded and masked and with autograd, so that it shares nothing with the packed C++ model
but the definition. Each file <case>.safetensors holds the config (as metadata), the batch, the initial weights, the
logits, the summed losses, every gradient, and the weights after ten Adam updates.

    python3 make_golden.py        (Debian: python3-torch 1.13)

Numbers that the C++ side keeps in float are exact powers of two here, so that float64 runs can be compared tightly.
"""

import json
import math
import pathlib
import struct

import torch
import torch.nn.functional as F

torch.set_default_dtype(torch.float64)

WIDTH, HEADS, HIDDEN = 16, 4, 24
SMOOTHING = 0.125
RATE, BETAS, UPDATES = 2.0**-7, (0.875, 0.96875), 10
BOS, EOS = 2, 1

# The gradient of a key's bias is zero but for rounding (softmax does not see it), which Adam with a small epsilon would
# blow up; so the case with attention biases has a large one. Epsilon is 2 to the power of epsilon_exponent.
CASES = {
    "pre_relu_all": dict(norm="pre", activation="relu", tie="all", attention_bias=False, epsilon_exponent=-30,
                         source_vocabulary=13, target_vocabulary=13, encoder_layers=2, decoder_layers=2),
    "post_gelu_none": dict(norm="post", activation="gelu", tie="none", attention_bias=True, epsilon_exponent=-10,
                           source_vocabulary=11, target_vocabulary=9, encoder_layers=1, decoder_layers=2),
    "pre_swish_output": dict(norm="pre", activation="swish", tie="output", attention_bias=False, epsilon_exponent=-30,
                             source_vocabulary=12, target_vocabulary=10, encoder_layers=2, decoder_layers=1),
}

# Ragged; the targets with their end marks are 16 tokens.
SOURCE = [[4, 7, 3, 8, EOS], [5, EOS], [9, 4, 4, 10, 6, 3, EOS]]
TARGET = [[5, 6, 4, 8], [7, 3], [4, 4, 8, 5, 3, 6, 7]]


def make_weights(c):
    """Name -> tensor. Norms and biases are random too, so that nothing is compared at zero or one."""
    torch.manual_seed(20240229)
    w = {}

    def matrix(name, out, inp):
        w[name + ".weight"] = torch.randn(out, inp) / math.sqrt(inp)

    def vector(name, size, mean=0.0):
        w[name] = mean + 0.2 * torch.randn(size)

    def linear(name, out, inp, bias):
        matrix(name, out, inp)
        if bias:
            vector(name + ".bias", out)

    def norm(name):
        vector(name + ".gamma", WIDTH, 1.0)
        vector(name + ".beta", WIDTH)

    def layer(name, cross):
        norm(name + ".self.norm")
        linear(name + ".self.qkv", 3 * WIDTH, WIDTH, c["attention_bias"])
        linear(name + ".self.out", WIDTH, WIDTH, c["attention_bias"])
        if cross:
            norm(name + ".cross.norm")
            linear(name + ".cross.q", WIDTH, WIDTH, c["attention_bias"])
            linear(name + ".cross.kv", 2 * WIDTH, WIDTH, c["attention_bias"])
            linear(name + ".cross.out", WIDTH, WIDTH, c["attention_bias"])
        norm(name + ".ffn.norm")
        linear(name + ".ffn.in", HIDDEN, WIDTH, True)
        linear(name + ".ffn.out", WIDTH, HIDDEN, True)

    if c["tie"] == "all":
        matrix("embedding", c["source_vocabulary"], WIDTH)
    else:
        matrix("source_embedding", c["source_vocabulary"], WIDTH)
        matrix("target_embedding", c["target_vocabulary"], WIDTH)
    if c["tie"] == "none":
        matrix("output", c["target_vocabulary"], WIDTH)
    for i in range(c["encoder_layers"]):
        layer(f"encoder.layers.{i}", False)
    for i in range(c["decoder_layers"]):
        layer(f"decoder.layers.{i}", True)
    if c["norm"] == "pre":
        norm("encoder.norm")
        norm("decoder.norm")
    return {name: value.requires_grad_() for name, value in w.items()}


def pad(sentences):
    longest = max(map(len, sentences))
    ids = torch.tensor([s + [0] * (longest - len(s)) for s in sentences])
    real = torch.tensor([[i < len(s) for i in range(longest)] for s in sentences])
    return ids, real


def positions(length):
    half = WIDTH // 2
    rates = torch.exp(-torch.arange(half) * (math.log(10000.0) / (half - 1)))
    angles = torch.arange(length).unsqueeze(1) * rates
    return torch.cat([angles.sin(), angles.cos()], dim=1)


class Model:
    def __init__(self, config, weights):
        self.c, self.w = config, weights

    def linear(self, name, x):
        return F.linear(x, self.w[name + ".weight"], self.w.get(name + ".bias"))

    def norm(self, name, x):
        return F.layer_norm(x, (WIDTH,), self.w[name + ".gamma"], self.w[name + ".beta"], eps=1e-6)

    def sublayer(self, name, x, f):
        if self.c["norm"] == "pre":
            return x + f(self.norm(name + ".norm", x))
        return self.norm(name + ".norm", x + f(x))

    def attention(self, q, k, v, allowed):
        def split(x):
            return x.view(x.shape[0], x.shape[1], HEADS, -1).transpose(1, 2)

        q, k, v = split(q), split(k), split(v)
        scores = q @ k.transpose(2, 3) / math.sqrt(WIDTH // HEADS)
        mixed = scores.masked_fill(~allowed, -math.inf).softmax(-1) @ v
        return mixed.transpose(1, 2).flatten(2)

    def self_attention(self, name, x, allowed):
        q, k, v = self.linear(name + ".qkv", x).split(WIDTH, dim=2)
        return self.linear(name + ".out", self.attention(q, k, v, allowed))

    def cross_attention(self, name, x, memory, allowed):
        k, v = self.linear(name + ".kv", memory).split(WIDTH, dim=2)
        return self.linear(name + ".out", self.attention(self.linear(name + ".q", x), k, v, allowed))

    def feed_forward(self, name, x):
        f = {"relu": F.relu, "gelu": F.gelu, "swish": F.silu}[self.c["activation"]]
        return self.linear(name + ".out", f(self.linear(name + ".in", x)))

    def embed(self, side, ids):
        table = self.w["embedding.weight" if self.c["tie"] == "all" else side + "_embedding.weight"]
        return table[ids] * math.sqrt(WIDTH) + positions(ids.shape[1])

    def logits(self, source, source_real, target):
        seen = source_real[:, None, None, :]
        past = torch.ones(target.shape[1], target.shape[1]).tril().bool()
        x = self.embed("source", source)
        for i in range(self.c["encoder_layers"]):
            name = f"encoder.layers.{i}"
            x = self.sublayer(name + ".self", x, lambda y: self.self_attention(name + ".self", y, seen))
            x = self.sublayer(name + ".ffn", x, lambda y: self.feed_forward(name + ".ffn", y))
        memory = self.norm("encoder.norm", x) if self.c["norm"] == "pre" else x
        x = self.embed("target", target)
        for i in range(self.c["decoder_layers"]):
            name = f"decoder.layers.{i}"
            x = self.sublayer(name + ".self", x, lambda y: self.self_attention(name + ".self", y, past))
            x = self.sublayer(name + ".cross", x, lambda y: self.cross_attention(name + ".cross", y, memory, seen))
            x = self.sublayer(name + ".ffn", x, lambda y: self.feed_forward(name + ".ffn", y))
        if self.c["norm"] == "pre":
            x = self.norm("decoder.norm", x)
        output = {"all": "embedding", "output": "target_embedding", "none": "output"}[self.c["tie"]]
        return F.linear(x, self.w[output + ".weight"])


def losses(logits, labels):
    """Sums over tokens: label-smoothed cross-entropy and plain negative log-likelihood."""
    logp = logits.log_softmax(-1)
    low = SMOOTHING / (logits.shape[1] - 1)
    soft = torch.full_like(logits, low).scatter(1, labels[:, None], 1 - SMOOTHING)
    return -(soft * logp).sum(), F.nll_loss(logp, labels, reduction="sum")


def write_safetensors(path, tensors, metadata):
    kinds = {torch.float64: "F64", torch.int32: "I32"}
    header, data = {"__metadata__": metadata}, b""
    for name, tensor in tensors.items():
        raw = tensor.detach().contiguous().numpy().astype(tensor.detach().numpy().dtype.newbyteorder("<")).tobytes()
        header[name] = dict(dtype=kinds[tensor.dtype], shape=list(tensor.shape),
                            data_offsets=[len(data), len(data) + len(raw)])
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def packed(sentences):
    return torch.tensor(sum(sentences, []), dtype=torch.int32)


def run(config):
    w = make_weights(config)
    out = {"initial/" + name: value.detach().clone() for name, value in w.items()}
    source, source_real = pad(SOURCE)
    target, target_real = pad([[BOS] + t for t in TARGET])
    labels = packed([t + [EOS] for t in TARGET]).long()
    for name, value in [("source", SOURCE), ("target", TARGET)]:
        out[name + "_tokens"] = packed(value)
        out[name + "_lengths"] = torch.tensor([len(s) for s in value], dtype=torch.int32)

    model = Model(config, w)
    optimizer = torch.optim.Adam(w.values(), lr=RATE, betas=BETAS, eps=2.0 ** config["epsilon_exponent"])
    for update in range(UPDATES):
        optimizer.zero_grad()
        logits = model.logits(source, source_real, target)[target_real]
        smoothed, nll = losses(logits, labels)
        (smoothed / len(labels)).backward()
        if update == 0:
            out["logits"] = logits
            out["losses"] = torch.stack([smoothed, nll])
            out.update({"gradient/" + name: value.grad.clone() for name, value in w.items()})
        optimizer.step()
    out.update({"updated/" + name: value.detach().clone() for name, value in w.items()})
    return out


def main():
    for case, config in CASES.items():
        metadata = {key: str(value) for key, value in config.items()}
        write_safetensors(pathlib.Path(__file__).parent / (case + ".safetensors"), run(config), metadata)


main()
