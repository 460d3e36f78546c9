// The version of the library, handed in by the build.
// Main entry: version().
#include <anello/core/version.h>

namespace anello {

const char* version() noexcept { return ANELLO_VERSION; }

}  // namespace anello
