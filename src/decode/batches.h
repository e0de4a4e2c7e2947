// Splits a call into batches, reports its progress and stops it if wanted.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "tandem/translation.h"

namespace tandem::decode {

// Fails with an error that names the impossible value.
void check(const CallOptions& options);

// Calls body(indices) for each batch of items with these sizes in pieces, the longest items first. Before each batch it
// reports the progress and checks for a stop. `usual` is the batch that suits the device. If a batch does not fit the
// memory (OutOfMemory), it is halved, and *most limits the batches after it, also in later calls.
void for_each_batch(std::span<const int64_t> sizes, const CallOptions& options, int64_t usual, int64_t* most,
                    const std::function<void(std::span<const size_t>)>& body);

// For CallOptions::on_progress: shows finished sentences and remaining time on the terminal's status line, and removes
// the line at the end.
std::function<void(const CallProgress&)> translation_status();

}  // namespace tandem::decode
