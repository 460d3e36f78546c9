# Backends that are not in this version: asking for one is an error, never silently ignored.
# Main entry: included by the root CMakeLists.txt.
foreach(backend CUDA NCCL)
  if(ANELLO_${backend})
    set(what_CUDA "the CUDA kernels (core/cuda, libanello_cuda.so) are not part of version ${PROJECT_VERSION}")
    set(what_NCCL "the NCCL transport (dist/nccl, libanello_nccl.so) is not part of version ${PROJECT_VERSION}")
    message(FATAL_ERROR "[cmake] ANELLO_${backend}=ON, but ${what_${backend}}. Hint: configure with -DANELLO_${backend}=OFF.")
  endif()
endforeach()
