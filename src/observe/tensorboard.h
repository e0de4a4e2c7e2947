// TensorBoard event files (docs/formats.md): scalars, texts and hyperparameters that the real TensorBoard reads.
//
// Append-only; the kernel has every record when the call returns. Once the file is open, nothing here fails: data that
// cannot be written is dropped with one warning (append_file.h).
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "observe/append_file.h"

namespace tandem::observe {

using Scalars = std::vector<std::pair<std::string, double>>;
using Hyperparameters = std::vector<std::pair<std::string, std::variant<double, std::string, bool>>>;

class EventWriter {
 public:
  // Begins a new file in the directory, which is created if needed. TensorBoard then drops all points of `first_step`
  // and later that older files hold.
  EventWriter(const std::filesystem::path& directory, int64_t first_step);

  void write(const std::string& event);  // one of those below

  const std::filesystem::path& path() const { return file_.path(); }

 private:
  AppendFile file_;
};

// Serialized Event messages. `time`: Unix seconds.
std::string version_event(double time);
std::string scalar_event(double time, int64_t step, const Scalars& scalars);
std::string text_event(double time, int64_t step, const std::string& tag, const std::string& markdown);
std::string hyperparameter_event(double time, const Hyperparameters& values);
std::string restart_event(double time, int64_t first_step);  // TensorBoard drops all points of this step and later
std::string end_event(double time, bool success);

// ---- the bytes around an event, for tests against known vectors

// CRC-32C, and the masked form in which event files store it.
uint32_t crc32c(std::string_view data);
uint32_t masked_crc32c(std::string_view data);
// The event as a file stores it: length, its checksum, the event, its checksum.
std::string frame(std::string_view event);

}  // namespace tandem::observe
