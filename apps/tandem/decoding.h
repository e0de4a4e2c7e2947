// What `translate` and `evaluate` share: their options, as the library takes them.
#pragma once

#include <string>
#include <vector>

#include "backend/precision.h"
#include "cli.h"
#include "tandem/translator.h"

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

// Fails if an option is impossible. The progress is drawn as a status line.
TranslateOptions translate_options(const DecodingOptions& options, int n_best);

// Loads the model; what the library has to say goes to the log.
Translator open_translator(const DecodingOptions& options);

Precision precision_of(const std::string& name);  // auto, f32 or bf16

// The lines of a text file, without their ends.
std::vector<std::string> read_lines(const std::string& file);

}  // namespace tandem::cli
