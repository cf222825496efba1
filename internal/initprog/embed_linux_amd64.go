package initprog

import _ "embed"

//go:embed init_amd64.elf
var program []byte

//go:embed launch_amd64.elf
var launcher []byte
