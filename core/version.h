// The version of the library, said once in the root CMakeLists.txt.
// Main entry: version().
#pragma once

namespace anello {

/// "major.minor.patch" of the libanello that is loaded (not of the headers compiled against). Static storage.
const char* version() noexcept;

}  // namespace anello
