// The library's version: what CMake says is what the library says.
// Main entry: test cases tagged [version].
#include <anello/core/version.h>

#include <cstdio>

#include "catch.h"

TEST_CASE("the version has three numbers", "[version]") {
  int major = -1, minor = -1, patch = -1;
  char rest = 0;
  REQUIRE(std::sscanf(anello::version(), "%d.%d.%d%c", &major, &minor, &patch, &rest) == 3);
  REQUIRE(major >= 0);
}
