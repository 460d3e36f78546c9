// Catch2 of either generation: version 2 (one header, Debian 12) and version 3 (a library) look the same to a test.
// Main entry: #include "catch.h", then TEST_CASE, REQUIRE, Approx, contains_text.
#pragma once

#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
using Catch::Approx;
#else
#include <catch2/catch.hpp>
#endif

#include <string>

/// Matcher for error texts: REQUIRE_THROWS_WITH(f(), contains_text("inner sizes differ") && contains_text("Hint:")).
inline auto contains_text(const std::string& part) {
#if __has_include(<catch2/catch_all.hpp>)
  return Catch::Matchers::ContainsSubstring(part);
#else
  return Catch::Matchers::Contains(part);
#endif
}
