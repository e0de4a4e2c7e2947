// The decoding options that `translate` and `evaluate` share.
#pragma once

#include <string>
#include <vector>

#include "cli.h"
#include "tandem/translator.h"

namespace tandem::cli {

struct DecodingOptions {
  std::string model;
  ModelOptions loading;
  TranslateOptions translating;
};

void add_decoding_options(Command& command, DecodingOptions& options);

// Fails if an option is impossible. Progress is shown as a status line.
TranslateOptions translate_options(const DecodingOptions& options, int n_best);

// Loads the model; messages of the library go to the log.
Translator open_translator(const DecodingOptions& options);

// The values of --precision, in the order of the enumeration.
inline const std::vector<std::string> kPrecisions = {"auto", "f32", "bf16"};

}  // namespace tandem::cli
