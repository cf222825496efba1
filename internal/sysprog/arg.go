package sysprog

// A Kind says what an argument is.
type Kind uint8

// The kinds of argument.
const (
	KindConst     Kind = iota // the number in Value
	KindOpenFlags             // an OpenFlag in Value, translated for the architecture
	KindOpenHow               // a struct open_how: flags as above, then Text
	KindString                // the address of Text and a NUL byte
	KindBytes                 // the address of a copy of Text, which the call may write to
	KindFilter                // the address of a struct sock_fprog for the BPF instructions in Text
	KindVector                // the address of a NULL-terminated array of the strings in List
	KindEnviron               // the same for Options.Env: a program contains no secrets
	KindResult                // what step number Value, an earlier one, returned
	KindFile                  // the descriptor Options.Files[Value]
	KindSync                  // the child's end (Value 0) or the parent's (Value 1) of the rendezvous
	KindArgv                  // the address of a NULL-terminated array of the strings in Options.Argv
	KindText                  // the address of Options.Texts[Value] and a NUL byte
	KindOutput                // the address of Value bytes that the call fills: see Block.ReportInode
	KindMessage               // the address of a struct msghdr: the bytes in Text, with the descriptor Value
)

// An Arg is one argument of a system call. The Kind says which fields are used.
type Arg struct {
	Kind  Kind
	Value uint64
	Text  string // a path or bytes; a string, because programs share it
	List  []string
	// note, unless nil, returns how the argument is printed, if its number or bytes would say
	// little.
	note func() string
}

// Const returns a plain number.
func Const(v uint64) Arg { return Arg{Value: v} }

// Named returns a number that is printed as a name.
func Named(v uint64, name string) Arg { return Arg{Value: v, note: func() string { return name }} }

// FD returns a descriptor with a known number.
func FD(n int) Arg { return Const(uint64(n)) }

// Str returns a string.
func Str(s string) Arg { return Arg{Kind: KindString, Text: s} }

// Bytes returns the address of the bytes. They are printed as note, or as a quoted string if
// note is empty.
func Bytes(b []byte, note string) Arg {
	a := Arg{Kind: KindBytes, Text: string(b)}
	if note != "" {
		a.note = func() string { return note }
	}
	return a
}

// Cwd returns the working folder, for calls that take the descriptor of a folder.
func Cwd() Arg {
	const atFDCWD = -100
	v := int64(atFDCWD)
	return Named(uint64(v), "AT_FDCWD")
}

// null returns a NULL pointer.
func null() Arg { return Named(0, "NULL") }
