// libtandem: translating with a trained model.
//
//   tandem::Translator translator("runs/en-de");
//   std::cout << translator.translate_line("A sentence.").text << "\n";
//
// The library writes to no terminal, log or signal handler: its messages go to ModelOptions::on_message. It throws only
// tandem::Error; an exception thrown by a callback becomes an Error, too. A callback must not call the translator that
// called it.
// This interface is not stable yet: it may change with each version until a release declares it stable.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tandem/error.h"
#include "tandem/export.h"
#include "tandem/precision.h"
#include "tandem/translation.h"

namespace tandem {

enum class Severity : uint8_t { info, warning };

struct ModelOptions {
  std::string device = "auto";  // auto (the first usable GPU, else the CPU), cpu, cuda or cuda:N
  int threads = 0;              // CPU threads; 0 = as many as this process may use. Results do not depend on it
  Precision precision = Precision::automatic;
  bool use_average = true;  // the moving average of the weights, if the model has one
  // Called on the thread that opens the model or calls the translator.
  std::function<void(Severity, const std::string&)> on_message;
};

struct ModelInfo {
  std::string directory;  // holds the weights
  int64_t step = 0;       // training steps done
  std::string device;     // description of the device
  Precision precision = Precision::f32;
  int64_t max_pieces = 0;  // longest sentence, the end mark counted
  int64_t source_vocabulary = 0, target_vocabulary = 0;
  int64_t usual_batch = 0;  // sentences per batch that suit the device
};

// A model, ready to translate. Calls from several threads wait for one another; different translators do not.
class TANDEM_EXPORT Translator {
 public:
  // `model` is a run directory (its best checkpoint, else its latest), a checkpoint or an averaged model. Every file is
  // checked.
  explicit Translator(const std::filesystem::path& model, const ModelOptions& options = {});
  ~Translator();
  Translator(Translator&&) noexcept;
  Translator& operator=(Translator&&) noexcept;

  const ModelInfo& info() const;

  // Returns each line's n best translations, best first, at least one. A line without text has one empty translation. A
  // line that is longer than the model takes is translated in parts, with a warning, and has one translation: the
  // parts' best, joined by spaces, scores and tokens added.
  std::vector<std::vector<Translation>> translate(std::span<const std::string> lines,
                                                  const TranslateOptions& options = {});
  // The best translation of one line.
  Translation translate_line(const std::string& line, const TranslateOptions& options = {});

  // Returns how likely each target is as the translation of its source.
  std::vector<PairScore> score(std::span<const std::string> sources, std::span<const std::string> targets,
                               const CallOptions& options = {});

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// The library's version, as MAJOR.MINOR.PATCH.
TANDEM_EXPORT const char* version();

}  // namespace tandem
