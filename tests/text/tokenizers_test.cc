#include "text/tokenizers.h"

#include <gtest/gtest.h>

#include <string>

#include "core/error.h"
#include "text/metric_text.h"
#include "text/ter.h"

namespace tandem::text::metric {
namespace {

// Tokens with one space between them; code points other than ASCII are escaped.
std::string shown(std::u32string_view text) {
  std::string result;
  for (const auto word : split(text)) {
    result += result.empty() ? "" : " ";
    for (const char32_t c : word) {
      result += c < 0x80 ? std::string(1, static_cast<char>(c)) : fmt::format("<{:X}>", static_cast<uint32_t>(c));
    }
  }
  return result;
}

TEST(MetricText, DecodesBrokenBytesAsPythonDoes) {
  EXPECT_EQ(code_points("a\xC3\xA4\xF0\x9F\x98\x80"), U"a\u00E4\U0001F600");
  EXPECT_EQ(code_points("\xFFx\xE2\x82y\xED\xA0\x80"), U"\uFFFDx\uFFFDy\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(code_points(std::string("\0\xC3", 2)), std::u32string(U"\0\uFFFD", 2));
}

TEST(MetricText, WhiteSpaceIsPythons) {
  const std::u32string spaces =
      U"\t\n\v\f\r\x1C\x1D\x1E\x1F \u0085\u00A0\u1680\u2000\u200A\u2028\u2029\u202F\u205F\u3000";
  for (const char32_t c : spaces) {
    EXPECT_TRUE(is_space(c)) << static_cast<uint32_t>(c);
  }
  for (const char32_t c : std::u32string(U"a\u200B\u180E\u2060\uFEFF\x1B\x7F")) {
    EXPECT_FALSE(is_space(c)) << static_cast<uint32_t>(c);
  }
  EXPECT_EQ(shown(spaces + U"a" + spaces + U"b" + spaces), "a b");
  EXPECT_EQ(rstrip(U" a " + spaces), U" a");
  EXPECT_EQ(rstrip_utf8("a\xC3\xA4 \xE3\x80\x80\r\n"), "a\xC3\xA4");
  EXPECT_EQ(rstrip_utf8("x\xA0"), "x\xA0") << "a lone byte of a longer character is no space";
  EXPECT_EQ(rstrip_utf8(" \t"), "");
}

TEST(MetricText, LowerCaseIsPythons) {
  EXPECT_EQ(lower(U"ÄPFEL Straße ẞ DŽ"), U"äpfel straße ß dž");
  EXPECT_EQ(lower(U"İ"), U"i\u0307");
  EXPECT_EQ(lower(U"ΟΔΟΣ Σ ΣΑΣ. ΑΣ'Α"), U"οδος σ σας. ασ'α");
}

TEST(Tokenizers, Mteval13a) {
  EXPECT_EQ(shown(tokenize_13a(U"It costs 3.5% of $1,000-2 (approx.)")), "It costs 3.5 % of $ 1,000 - 2 ( approx . )");
  EXPECT_EQ(shown(tokenize_13a(U"&quot;Hallo&quot; &amp;lt; x&gt;")), "\" Hallo \" < x >");
  EXPECT_EQ(shown(tokenize_13a(U"a<skipped>b end-\nof line\nnext")), "ab endof line next");
  EXPECT_EQ(shown(tokenize_13a(U"a.,b 1.,2 .5 5.")), "a . , b 1 . , 2 . 5 5 .");
  EXPECT_EQ(shown(tokenize_13a(U"don't well-known \u201Ex\u201C")), "don't well-known <201E>x<201C>");
}

TEST(Tokenizers, International) {
  EXPECT_EQ(shown(tokenize_intl(U"Hello, world! 3.14 costs 5\u20AC.")), "Hello , world ! 3.14 costs 5 <20AC> .");
  EXPECT_EQ(shown(tokenize_intl(U"\u201Ex\u201C in 1999.")), "<201E> x <201C> in 1999.");
}

TEST(Tokenizers, CharactersAndNone) {
  EXPECT_EQ(shown(tokenize_char(U"a\u0308b \U0001F600")), "a <308> b <1F600>");
  EXPECT_EQ(shown(tokenize_none(U" a,b  c ")), "a,b c");
  EXPECT_THROW(bleu_tokenizer("zh"), Error);
  for (const auto& name : kBleuTokenizers) {
    EXPECT_NE(bleu_tokenizer(name), nullptr);
  }
}

TEST(Tokenizers, Tercom) {
  EXPECT_EQ(shown(tokenize_tercom(U"The  CAT's, 3.5!", {})), "the cat's, 3.5!");
  EXPECT_EQ(shown(tokenize_tercom(U"The CAT's here, 3.5!", {.normalized = true})), "the cat 's here , 3.5 !");
  EXPECT_EQ(shown(tokenize_tercom(U"A (b), c. d-e", {.no_punct = true, .case_sensitive = true})), "A b c d-e");
  EXPECT_EQ(shown(tokenize_tercom(U"\u4F60\u597D\u3002", {.normalized = true, .asian_support = true})),
            "<4F60> <597D> <3002>");
  EXPECT_EQ(shown(tokenize_tercom(U"\u4F60\u3002x\uFF0C", {.no_punct = true, .asian_support = true})), "<4F60>x");
  EXPECT_EQ(tokenize_tercom(U"", {.normalized = true}), U"");
}

}  // namespace
}  // namespace tandem::text::metric
