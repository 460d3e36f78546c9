// The entry of the C++ tests.
// Main entry: main(); options are Catch2's (anello_tests --help).
#define CATCH_CONFIG_RUNNER
#include "catch.h"

int main(int argc, char** argv) { return Catch::Session().run(argc, argv); }
