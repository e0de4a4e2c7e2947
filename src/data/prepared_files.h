// Names of the files in a prepared directory, for its reader and its writer.
#pragma once

#include <string>

#include "core/manifest.h"

namespace tandem::data {

constexpr const char* kPreparedKind = "prepared";
constexpr const char* kCorpusFile = "train.corpus";
constexpr const char* kJointTokenizerFile = "joint.model";
constexpr const char* kSourceTokenizerFile = "source.model";
constexpr const char* kTargetTokenizerFile = "target.model";
constexpr const char* kStatisticsFile = "stats.json";

// Changes if anything changes that training reads.
std::string prepared_fingerprint(const Manifest& manifest);

}  // namespace tandem::data
