package sysprog

const hostArch = amd64
