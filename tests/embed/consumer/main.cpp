// A consumer outside the repository: includes every installed header, computes something, meets a clear error.
// Main entry: main(), which prints "consumer ok <version>".
#include "all_headers.h"

#include <anello/anello.h>

#include <cstdio>
#include <exception>

int main() {
  try {
    const anello::Tensor ones = anello::ones({2, 3});
    const double total = anello::sum(anello::add(ones, ones)).item<double>();
    if (total != 12.0) {
      std::fprintf(stderr, "2 x 3 twos add up to %g\n", total);
      return 1;
    }
    try {
      anello::matmul(ones, ones);
      std::fprintf(stderr, "(2, 3) @ (2, 3) raised nothing\n");
      return 1;
    } catch (const anello::ShapeError&) {  // an exception of the library is caught by its type across the border
    }
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
  std::printf("consumer ok %s\n", anello::version());
}
