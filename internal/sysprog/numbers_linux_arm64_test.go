package sysprog

const hostArch = arm64
