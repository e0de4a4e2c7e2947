// What `translate` and `evaluate` share: the options of decoding, and a model that is ready to translate.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cli.h"
#include "decode/line_translator.h"
#include "store/model_loader.h"

namespace tandem::cli {

struct DecodingOptions {
  std::string model;
  int beam = 4;
  double alpha = 0.6;
  int64_t batch = 0;
  int64_t max_extra = 50;
  std::string device = "auto";
  int threads = 0;
  std::string precision = "auto";
  bool no_ema = false;
};

void add_decoding_options(Command& command, DecodingOptions& options);

// Fails before anything is loaded when an option is impossible.
struct LoadedTranslator {
  LoadedTranslator(const DecodingOptions& options, int n_best, std::function<void()> before_batch = {});

  TranslateOptions translate;
  std::unique_ptr<Backend> backend;
  InferenceModel model;
  BatchDecoder decoder;
  LineTranslator translator;
};

Precision precision_of(const std::string& name);  // auto, f32 or bf16

// The lines of a text file, without their ends.
std::vector<std::string> read_lines(const std::string& file);

}  // namespace tandem::cli
