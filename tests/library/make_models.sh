#!/bin/sh
# make_models.sh TANDEM DIRECTORY: trains two very small models, a and b, and keeps what the program makes of lines.en
# and, in a.json and b.json, of the pairs scored.en and lines.de.
set -eu
tandem=$1
rm -rf "$2"
mkdir -p "$2"
cd "$2"
awk 'BEGIN {
  split("red blue green cat dog bird runs sleeps sings fast", en, " ");
  split("rot blau gruen katze hund vogel rennt ruht singt oft", de, " ");
  srand(7);
  for (line = 0; line < 600; ++line) {
    source = target = "";
    for (word = 2 + int(rand() * 5); word > 0; --word) {
      pick = 1 + int(rand() * 10);
      source = source (source == "" ? "" : " ") en[pick];
      target = de[pick] (target == "" ? "" : " ") target;
    }
    print source > "train.en";
    print target > "train.de";
  }
}'
(head -n 40 train.en; echo; echo "a cat, naïve?") > lines.en
"$tandem" prepare --source train.en --target train.de --out data --vocab-size 80 --threads 1 2>prepare.log
cat >config.toml <<'END'
seed = 1
device = "cpu"
threads = 1
[model]
heads = 4
feed_forward = 64
encoder_layers = 1
decoder_layers = 2
max_length = 24
[batch]
tokens = 300
[schedule]
policy = "fixed_lr"
learning_rate = 0.003
[validation]
every_steps = 0
[log]
probe_seconds = 0
END
for model in a b; do
  case $model in a) width=32 steps=60 ;; b) width=48 steps=90 ;; esac
  "$tandem" train config.toml data=data run=$model model.width=$width stop.max_steps=$steps 2>$model.log
  head -n 40 train.de >lines.de
  head -n 40 lines.en >scored.en
  "$tandem" evaluate --model $model --device cpu --threads 1 --source scored.en --target lines.de --json \
    >$model.json 2>>$model.log
  "$tandem" translate --model $model --device cpu --threads 1 --n-best 3 -i lines.en -o $model.out 2>>$model.log
done
