// A small SentencePiece model and lines that are hard to encode, for tests.
#pragma once

#include <gtest/gtest.h>
#include <sentencepiece_trainer.h>

#include <string>
#include <unordered_map>
#include <vector>

#include "core/philox.h"

namespace tandem::testing {

// Trains a small model on made-up words; `options` are SentencePiece's.
inline std::string small_model(std::unordered_map<std::string, std::string> options) {
  struct Words : sentencepiece::SentenceIterator {
    Words() { Next(); }
    bool done() const override { return count > 400; }
    void Next() override {
      text.clear();
      for (int word = 0; word < 8; ++word) {
        for (uint64_t part = 0; part < 1 + random.below(4); ++part) {
          static constexpr const char* kParts[] = {"ha", "us",       "er", "ung", "the",
                                                   "in", "\xC3\xBC", "1",  ",",   "\xE6\x97\xA5"};
          text += kParts[random.below(std::size(kParts))];
        }
        text += ' ';
      }
      ++count;
    }
    const std::string& value() const override { return text; }
    sentencepiece::util::Status status() const override { return {}; }
    PhiloxStream random{1, 2};
    std::string text;
    int count = 0;
  } words;
  std::unordered_map<std::string, std::string> all = {
      {"vocab_size", "200"}, {"model_type", "bpe"}, {"character_coverage", "1.0"},
      {"minloglevel", "2"},  {"pad_id", "0"},       {"eos_id", "1"},
      {"bos_id", "2"},       {"unk_id", "3"},       {"hard_vocab_limit", "false"}};
  for (auto& [key, value] : options) {
    all[key] = value;
  }
  std::string model;
  const auto status = sentencepiece::SentencePieceTrainer::Train(all, &words, &model);
  EXPECT_TRUE(status.ok()) << status.ToString();
  return model;
}

// Lines of ordinary and nasty parts: spaces of every kind, combining marks, ligatures, controls, invalid bytes.
inline std::vector<std::string> nasty_lines(size_t count, uint32_t seed) {
  static const std::string kParts[] = {"haus",
                                       "the",
                                       "er",
                                       "in",
                                       "1",
                                       ",",
                                       " ",
                                       " ",
                                       " ",
                                       "  ",
                                       "\t",
                                       "\r",
                                       "\n",
                                       "\x01",
                                       "\x7F",
                                       std::string(1, '\0'),
                                       "\xC2\xA0",
                                       "\xE3\x80\x80",
                                       "\xE2\x80\x8B",
                                       "\xE2\x80\x8D",
                                       "\xEF\xBB\xBF",
                                       "\xE2\x80\xA8",
                                       "\xCC\x88",
                                       "\xCD\x84",
                                       "\xCC\x81",
                                       "\xC2\xA8",
                                       "\xCE\x85",
                                       "\xC2\xB4",
                                       "\xEF\xB7\xBA",
                                       "\xEF\xAC\x81",
                                       "\xEF\xBC\xA1",
                                       "\xC3\xBC",
                                       "u\xCC\x88",
                                       "\xF0\x9F\xA4\xB7",
                                       "\xF0\x9F\x87\xA9\xF0\x9F\x87\xAA",
                                       "\xE2\x96\x81",
                                       "\xE2\x96\x81\xE2\x96\x81",
                                       "\xE2\x96\x85",
                                       "\xED\xA0\x80",
                                       "\xFF",
                                       "\xE2\x96",
                                       "\xF0\x9F",
                                       "<s>",
                                       "</s>",
                                       "<unk>",
                                       "<pad>",
                                       "\xE1\x84\x80",
                                       "\xE1\x85\xA1",
                                       "\xE1\x86\xA8",
                                       "\xE0\xB8\xB3",
                                       "\xEF\xBF\xBD"};
  PhiloxStream random(99, 3, seed);
  std::vector<std::string> lines = {
      "", " ", "   ", "\t", "\xC2\xA0", "\xE2\x96\x81", "a\xE2\x96\x81", "a\xE2\x96\x81 b", "\xE2\x80\x8B"};
  while (lines.size() < count) {
    std::string line;
    for (uint64_t left = 1 + random.below(16); left > 0; --left) {
      if (random.below(8) == 0) {  // any character of the first 0x30000
        const auto code = static_cast<uint32_t>(random.below(0x30000));
        line += static_cast<char>(0xF0 | code >> 18);
        line += static_cast<char>(0x80 | (code >> 12 & 63));
        line += static_cast<char>(0x80 | (code >> 6 & 63));
        line += static_cast<char>(0x80 | (code & 63));
      } else {
        line += kParts[random.below(std::size(kParts))];
      }
    }
    lines.push_back(line);
  }
  return lines;
}

}  // namespace tandem::testing
