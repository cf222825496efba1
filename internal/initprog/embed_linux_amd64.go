package initprog

import _ "embed"

//go:embed init_amd64.elf
var program []byte
