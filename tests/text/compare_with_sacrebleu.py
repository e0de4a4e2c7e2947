"""Compares `tandem score` with the sacreBLEU package on made-up texts, to 1e-9.

    compare_with_sacrebleu.py BINARY [CASES]

Every case is a small corpus with one to four references, scored by BLEU, chrF and TER with random options; CASES
(default 60) of them for each BLEU tokenizer. The same numbers in every run. Exit status 77: sacreBLEU is not there.
"""

import gzip
import json
import lzma
import random
import subprocess
import sys
import tempfile
import unicodedata
from pathlib import Path

try:
    from sacrebleu.metrics import BLEU, CHRF, TER
except ImportError as error:
    print(f"SKIPPED: the sacreBLEU package is not installed in this environment ({error})")
    sys.exit(77)

TOLERANCE = 1e-9
TOKENIZERS = ["13a", "intl", "char", "none"]

WORDS = """the The cat sat on mat. It costs 3.5% of $1,000-2 (approx.) Hallo Welt! we're John's cats' 's it's "quoted"
    e.g. U.S.A. 1.234,56 12-13 -5 a-b well-known ... ?! a/b C++ x=y user@example.com http://a.b/c?d=1&e=2 #tag 50€ £3 ¥7
    &amp; &quot;x&quot; &lt;b&gt; &amp;lt; &apos; &#39; <skipped> <b>bold</b> naïve Ærøskøbing STRASSE Straße ẞ ΟΔΟΣ
    ΣΑΣ. Σ ΑΣ' Σ'Α İstanbul ıI DŽungla ﬁn Größe Ĳsland Übung „Zitat“ «citat» ‘x’ 1’000 10–12 — … · • № ½ ² Ⅷ ٣٫٥ ١٢٣ १२३
    Привет, мир! ёлка Київ日本 日本語のテキスト。 私は「猫」です、 カタカナ ひらがな ㈱ ㌔ 豈 ︰ ⺀ ㇀ ㇰ 你好,世界! 3,5。 ！？（）：；
    한국어 문장입니다. שלום עולם! مرحبا، بالعالم؟ हिन्दी में। ไทย ภาษา e\u0301te\u0301 n\u0303 Z\u0351\u0327a\u0323 ̈x
    😀 👩‍👩‍👧‍👦 🇩🇪 👍🏽 ❤️ ✓ → ∑x² ≠ ± © ™ 𝔘𝔫𝔦 𐍈 𝟘𝟙 ａｂｃ ＡＢ１，２ \u200bzero\u200dwidth\ufeff soft\u00adhyphen _under_ `tick`
    ~ ^ | \\ { } [x] * + = < > @ ; : ' " , . - / ! ? § ¶ ¿qué? ¡hola! 0 1 10 1000000 3. .5 ,7 7, 7.a a.7 1-a 1--2""".split()
SPACES = [" "] * 30 + ["  ", "\t", "\r", "\x0b", "\x0c", "\x1c", "\x1d", "\x1e", "\x1f", "\x85", "\xa0", "\u1680", "\u2000",
                       "\u2003", "\u200a", "\u2028", "\u2029", "\u202f", "\u205f", "\u3000", "\u200b", "\u2060", "\u180e"]
CONTROLS = ["\x01", "\x07", "\x1b", "\x7f", "\x80", "\x9f", "\ufffd", "\ufeff", "\ufffe", "\U0010ffff", "\ue000"]  # no zero byte: `tandem score` refuses it
BROKEN = [b"\xff", b"\xc3", b"\xe2\x82", b"\xf0\x9f\x98", b"\xed\xa0\x80", b"\xc0\xaf", b"\xf4\x90\x80\x80", b"\x80\x80"]
ANY = [c for c in map(chr, range(0x21, 0x20000)) if unicodedata.category(c) not in ("Cn", "Cs")] + CONTROLS


def make_line(rng, words):
    kind = rng.random()
    if kind < 0.05:
        return rng.choice(["", "", " ", "\t\u3000 ", ".", "a"])
    if kind < 0.15:  # any characters
        return "".join(rng.choice(ANY) for _ in range(rng.randint(1, 40)))
    if kind < 0.25:  # ASCII only, punctuation and digits close together
        return "".join(chr(rng.randint(32, 126)) if rng.random() < 0.5 else rng.choice("0123456789.,-' s")
                       for _ in range(rng.randint(1, 60)))
    line = ""
    for _ in range(rng.randint(1, words)):
        line += rng.choice(WORDS) + rng.choice(SPACES)
        if rng.random() < 0.02:
            line += rng.choice(CONTROLS)
    return line


def disturb(rng, line):
    """Drops, repeats, replaces, moves and re-cases words."""
    words = line.split(" ")
    for _ in range(rng.randint(0, 1 + len(words) // 4)):
        i, j = rng.randrange(len(words)), rng.randrange(len(words))
        change = rng.randint(0, 5)
        if change == 0 and len(words) > 1:
            del words[i]
        elif change == 1:
            words.insert(i, words[j])
        elif change == 2:
            words[i] = rng.choice(WORDS)
        elif change == 3:
            group, words[i:i + 4] = words[i:i + 4], []
            words[j:j] = group
        elif change == 4:
            words[i] = words[i].swapcase()
        else:
            words[i] += rng.choice([".", ",", "!", ")", "-"])
        words = words or [""]
    return " ".join(words)


def make_case(rng, number):
    if number % 20 == 7:  # lengths far apart: tercom's beam is widened
        long_line = " ".join(rng.choice(WORDS) for _ in range(rng.randint(120, 250)))
        short_line = " ".join(long_line.split()[-2:])
        pairs = [(long_line, [short_line]), (short_line, [long_line])]
    elif number == 13:  # a long line with repeated words, shuffled: tercom's limits are reached
        words = [rng.choice(WORDS[:12 + number]) for _ in range(rng.randint(40, 50))]
        pairs = [(" ".join(words), [" ".join(rng.sample(words, len(words)))])]
    else:
        references = rng.choice([1, 1, 2, 3, 4])
        pairs = []
        for _ in range(rng.randint(1, 8)):
            origin = make_line(rng, rng.choice([3, 12, 30]))
            pairs.append((disturb(rng, origin), [disturb(rng, origin) for _ in range(references)]))
    if number % 20 == 2:  # a byte-order mark is text
        pairs[0] = ("\ufeff" + pairs[0][0], pairs[0][1])
    lines = [[hypothesis] + references for hypothesis, references in pairs]
    columns = [[line.replace("\n", " ").encode() for line in column] for column in zip(*lines)]
    for column in columns:
        if rng.random() < 0.1:
            i = rng.randrange(len(column))
            at = rng.randint(0, len(column[i]))
            column[i] = column[i][:at] + rng.choice(BROKEN) + column[i][at:]
    return columns[0], columns[1:]


def make_metrics(rng, tokenizer):
    """The package's metrics, and the arguments that make ours do the same."""
    arguments = ["--tokenize", tokenizer]
    bleu = {"tokenize": tokenizer, "force": True}
    if rng.random() < 0.5:
        bleu["smooth_method"] = rng.choice(["exp", "floor", "add-k", "none"])
        arguments += ["--smooth-method", bleu["smooth_method"]]
        if bleu["smooth_method"] in ("floor", "add-k") and rng.random() < 0.5:
            bleu["smooth_value"] = rng.choice([0.0, 0.01, 0.5, 2.5])
            arguments += ["--smooth-value", str(bleu["smooth_value"])]
    if rng.random() < 0.3:
        bleu["max_ngram_order"] = rng.randint(1, 8)
        arguments += ["--max-ngram-order", str(bleu["max_ngram_order"])]
    chrf = {"word_order": rng.choice([0, 2, 2, 1, 3])} if rng.random() < 0.6 else {}
    if rng.random() < 0.4:
        chrf.update(char_order=rng.randint(1, 9), beta=rng.choice([1, 2, 3]))
    for key, value in chrf.items():
        arguments += [f"--chrf-{key.replace('_', '-')}", str(value)]
    ter = {}
    for options, prefix, names in ((bleu, "--", ["lowercase", "effective_order"]),
                                   (chrf, "--chrf-", ["lowercase", "whitespace", "eps_smoothing"]),
                                   (ter, "--ter-", ["normalized", "no_punct", "asian_support", "case_sensitive"])):
        for name in names:
            if rng.random() < 0.35:
                options[name] = True
                arguments.append(prefix + name.replace("_", "-"))
    return [BLEU(**bleu), CHRF(**chrf), TER(**ter)], arguments


def run_ours(binary, folder, hypotheses, references, arguments):
    names = []
    for i, column in enumerate([hypotheses] + references):
        names.append(folder / f"{i}.txt")
        compress = {0: gzip.compress, 1: lzma.compress}.get(len(column) % 4, bytes)
        names[-1].write_bytes(compress(b"".join(line + b"\n" for line in column)))
    command = [binary, "score", "--hyp", "-", "--ref", *map(str, names[1:]), "--metric", "bleu,chrf,ter", "--format", "json",
               "--width", "15", *arguments]
    with names[0].open("rb") as standard_input:
        done = subprocess.run(command, stdin=standard_input, capture_output=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\nended with {done.returncode}: {done.stderr.decode()}")
    return json.loads(done.stdout)


def differences(score, signature, ours):
    theirs = {"name": score.name, "details": score._verbose,
              "signature": str(signature).rsplit("|version:", 1)[0]}
    mine = {"name": ours["name"], "details": ours.get("verbose_score", ""),
            "signature": ours["signature"].rsplit("|version:", 1)[0]}
    wrong = [f"{key}: {mine[key]!r} instead of {theirs[key]!r}" for key in theirs if mine[key] != theirs[key]]
    if not abs(score.score - ours["score"]) <= TOLERANCE:
        wrong.append(f"score: {ours['score']!r} instead of {score.score!r}")
    return wrong


def compare(binary, folder, rng, tokenizer, number):
    """Returns the number of scores compared."""
    hypotheses, references = make_case(rng, number)
    metrics, arguments = make_metrics(rng, tokenizer)
    # sacreBLEU's own command strips the ends of lines before the metrics see them
    decode = lambda column: [line.decode("utf-8", "replace").rstrip() for line in column]
    hyps, refs = decode(hypotheses), [decode(column) for column in references]
    expected = [(m.corpus_score(hyps, refs), m.get_signature()) for m in metrics]
    actual = run_ours(binary, folder, hypotheses, references, arguments)
    if number % 3 == 0:
        metrics[0].effective_order = True
        for metric in metrics:
            expected += [(metric.sentence_score(hyp, list(ref)), metric.get_signature()) for hyp, *ref in zip(hyps, *refs)]
        actual += run_ours(binary, folder, hypotheses, references, arguments + ["--sentence-level"])
    assert len(expected) == len(actual), f"{len(actual)} scores instead of {len(expected)}"
    for (score, signature), ours in zip(expected, actual):
        wrong = differences(score, signature, ours)
        if wrong:
            sys.exit(f"case {number} of {tokenizer}, {score.name}, arguments {arguments}\n  " + "\n  ".join(wrong) +
                     f"\nhypotheses {hypotheses!r}\nreferences {references!r}")
    return len(expected)


def compare_confidence(binary, folder, rng):
    """The package draws other lines: its mean and interval are near ours, not equal."""
    references = [make_line(rng, 20) for _ in range(300)]
    references = [line.replace("\n", " ").encode() for line in references]
    hypotheses = [disturb(rng, line.decode()).encode() for line in references]
    hyps, refs = ([line.decode().rstrip() for line in column] for column in (hypotheses, references))
    actual = run_ours(binary, folder, hypotheses, [references], ["--confidence"])
    for metric, ours in zip([BLEU(), CHRF(), TER()], actual):
        theirs = metric.corpus_score(hyps, [refs], n_bootstrap=1000)
        wrong = differences(theirs, metric.get_signature(), ours)
        if not abs(theirs._mean - ours["confidence_mean"]) <= 0.1 * theirs._ci:
            wrong.append(f"mean: {ours['confidence_mean']} instead of {theirs._mean}")
        if not abs(theirs._ci - ours["confidence_var"]) <= 0.15 * theirs._ci:
            wrong.append(f"half width: {ours['confidence_var']} instead of {theirs._ci}")
        if wrong:
            sys.exit(f"confidence of {theirs.name}\n  " + "\n  ".join(wrong))
        print(f"{theirs.name}: {ours['score']:.2f} ± {ours['confidence_var']:.3f}, the package's ± {theirs._ci:.3f}")


def main():
    binary = sys.argv[1]
    cases = int(sys.argv[2]) if len(sys.argv) > 2 else 60
    rng = random.Random(20240229)
    with tempfile.TemporaryDirectory() as folder:
        for tokenizer in TOKENIZERS:
            scores = sum(compare(binary, Path(folder), rng, tokenizer, number) for number in range(cases))
            print(f"tok:{tokenizer}: {cases} cases, {scores} scores of BLEU, chrF and TER equal to {TOLERANCE}")
        compare_confidence(binary, Path(folder), random.Random(20240229))


if __name__ == "__main__":
    main()
