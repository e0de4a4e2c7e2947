#!/usr/bin/env python3
"""The training step of the same model in PyTorch on the CPU, on the same sentence lengths, as a careful user writes it.

    torch_step.py MODEL LENGTHS [THREADS]

Batches of sentences of like length (sorted, then cut by the same token budget), padded and masked, nn.Linear,
scaled_dot_product_attention, cross_entropy with label smoothing, fused AdamW; f32 and bf16 autocast, eager. Prints one
line each; Tandem's bench_train_step writes LENGTHS.
"""
import math
import random
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

PRESETS = {'tiny': (4, 128, 4, 256), 'small': (6, 256, 4, 1024), 'base': (6, 512, 8, 2048), 'big': (6, 1024, 16, 4096)}
VOCABULARY = 32768


class Attention(nn.Module):
    def __init__(self, d, heads, p, cross):
        super().__init__()
        self.heads, self.p, self.cross = heads, p, cross
        if cross:
            self.q, self.kv = nn.Linear(d, d, bias=False), nn.Linear(d, 2 * d, bias=False)
        else:
            self.qkv = nn.Linear(d, 3 * d, bias=False)
        self.out = nn.Linear(d, d, bias=False)

    def forward(self, x, memory=None, mask=None, causal=False):
        q, k, v = (self.q(x), *self.kv(memory).chunk(2, -1)) if self.cross else self.qkv(x).chunk(3, -1)
        split = lambda t: t.unflatten(-1, (self.heads, -1)).transpose(1, 2)
        y = F.scaled_dot_product_attention(split(q), split(k), split(v), attn_mask=mask, is_causal=causal, dropout_p=self.p)
        return self.out(y.transpose(1, 2).flatten(2))


class Layer(nn.Module):
    def __init__(self, d, f, heads, p, decoder):
        super().__init__()
        self.p, self.decoder = p, decoder
        self.n1, self.a = nn.LayerNorm(d, 1e-6), Attention(d, heads, p, False)
        if decoder:
            self.n2, self.c = nn.LayerNorm(d, 1e-6), Attention(d, heads, p, True)
        self.n3, self.f1, self.f2 = nn.LayerNorm(d, 1e-6), nn.Linear(d, f), nn.Linear(f, d)

    def forward(self, x, memory=None, mask=None, cross_mask=None):
        drop = lambda t: F.dropout(t, self.p)
        x = x + drop(self.a(self.n1(x), mask=mask, causal=self.decoder))
        if self.decoder:
            x = x + drop(self.c(self.n2(x), memory, mask=cross_mask))
        return x + drop(self.f2(drop(F.relu(self.f1(self.n3(x))))))


class Model(nn.Module):
    def __init__(self, layers, d, heads, f, p=0.1):
        super().__init__()
        self.d, self.p = d, p
        self.embedding = nn.Embedding(VOCABULARY, d)
        nn.init.normal_(self.embedding.weight, std=d ** -0.5)
        self.encoder = nn.ModuleList(Layer(d, f, heads, p, False) for _ in range(layers))
        self.decoder = nn.ModuleList(Layer(d, f, heads, p, True) for _ in range(layers))
        self.ne, self.nd = nn.LayerNorm(d, 1e-6), nn.LayerNorm(d, 1e-6)
        angle = torch.arange(256)[:, None] * torch.exp(-torch.arange(d // 2) * math.log(1e4) / (d // 2 - 1))
        self.register_buffer('positions', torch.cat([angle.sin(), angle.cos()], 1))

    def embed(self, ids):
        return F.dropout(self.embedding(ids) * self.d ** 0.5 + self.positions[:ids.shape[1]], self.p)

    def forward(self, source, target_in, target_out):
        mask = (source != 0)[:, None, None, :]
        x = self.embed(source)
        for layer in self.encoder:
            x = layer(x, mask=mask)
        x, y = self.ne(x), self.embed(target_in)
        for layer in self.decoder:
            y = layer(y, x, cross_mask=mask)
        hidden = self.nd(y)[target_out != 0]  # logits of real tokens only
        return F.cross_entropy(F.linear(hidden, self.embedding.weight).float(), target_out[target_out != 0], label_smoothing=0.1)


def read_steps(path):
    """The file's sentence pairs in as many steps, sorted so that padding is least; the order of steps is random."""
    pairs, budget, used = [], 0, 0
    for line in open(path):
        if line.strip():
            pairs.append(tuple(map(int, line.split())))
            used += pairs[-1][1]
        else:
            budget, used = max(budget, used), 0
    pairs.sort(key=lambda pair: (max(pair), min(pair)))
    steps, current = [], []
    for pair in pairs:
        if sum(s for s, _ in current) + pair[0] > budget or sum(t for _, t in current) + pair[1] > budget:
            steps.append(current)
            current = []
        current.append(pair)
    steps += [current] if current else []
    random.Random(1).shuffle(steps)
    padded = sum(len(step) * (max(s for s, _ in step) + max(t for _, t in step)) for step in steps)
    print(f'{len(steps)} steps, {100 * (1 - sum(map(sum, pairs)) / padded):.1f} % of the positions are padding')
    return steps


def make_batch(pairs):
    def side(lengths):
        ids = torch.randint(4, VOCABULARY, (len(lengths), max(lengths)))
        ids[torch.arange(max(lengths))[None] >= torch.tensor(lengths)[:, None]] = 0
        return ids
    source, target = side([s for s, _ in pairs]), side([t for _, t in pairs])
    return source, F.pad(target[:, :-1], (1, 0), value=2), target


def main():
    name, path = sys.argv[1], sys.argv[2]
    if len(sys.argv) > 3:
        torch.set_num_threads(int(sys.argv[3]))
    torch.manual_seed(1)
    steps = read_steps(path)
    batches = [make_batch(pairs) for pairs in steps]
    print(f'PyTorch {torch.__version__}, {torch.get_num_threads()} threads, transformer-{name}')
    best = 0
    for kind in ('f32', 'bf16 autocast'):
        model = Model(*PRESETS[name])
        optimizer = torch.optim.AdamW(model.parameters(), 1e-4, (0.9, 0.997), 1e-9, weight_decay=0, fused=True)
        seconds = 0.0
        for i, batch in enumerate(batches):
            begin = time.perf_counter()
            optimizer.zero_grad(set_to_none=True)
            with torch.autocast('cpu', torch.bfloat16, enabled=kind != 'f32'):
                loss = model(*batch)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1e9)
            optimizer.step()
            took = time.perf_counter() - begin
            assert math.isfinite(loss.item())
            if i > 0:
                seconds += took
            if i >= 1 and seconds > 120:  # emulated bf16 can be very slow: a few steps tell it
                break
        done = sum(t for pairs in steps[1:i + 1] for _, t in pairs)
        best = max(best, done / seconds)
        print(f'{kind}: {seconds / i * 1e3:.1f} ms/step, {done / seconds:.0f} target tokens/s', flush=True)
    print(f'best: {best:.0f} target tokens/s')


main()
