#include "go_asm.h"
#include "textflag.h"

#define SYS_rt_sigprocmask 135
#define SYS_clone 220
#define SYS_exit_group 94
#define SIG_SETMASK 2
#define SIZEOF_SIGSET 8
#define EXIT_FAILED 125

// LOAD puts argument n of the record in R20 into a register, through its address
// where bit n of R21 says so.
#define LOAD(n, reg) \
	MOVD	(record_args+8*n)(R20), reg;	\
	TBZ	$n, R21, 2(PC);	\
	MOVD	(reg), reg

// func spawn(c *control)
//
// R19 holds the control block, R20 the current record. Only R0 changes in a
// system call. The frame pointer, g, and in the child the stack, are left alone.
TEXT ·spawn(SB),NOSPLIT,$0-8
	MOVD	c+0(FP), R19

	MOVD	$SIG_SETMASK, R0
	ADD	$control_blocked, R19, R1
	ADD	$control_mask, R19, R2
	MOVD	$SIZEOF_SIGSET, R3
	MOVD	$SYS_rt_sigprocmask, R8
	SVC

	MOVD	control_flags(R19), R0
	MOVD	$0, R1	// the stack stays the same
	ADD	$control_pidFD, R19, R2
	MOVD	$0, R3
	MOVD	$0, R4
	MOVD	$SYS_clone, R8
	SVC
	CBZ	R0, child

	MOVD	R0, control_pid(R19)
	MOVD	$SIG_SETMASK, R0
	ADD	$control_mask, R19, R1
	MOVD	$0, R2
	MOVD	$SIZEOF_SIGSET, R3
	MOVD	$SYS_rt_sigprocmask, R8
	SVC
	RET

child:
	MOVD	control_first(R19), R20
step:
	MOVD	R20, control_current(R19)
	MOVD	record_indirect(R20), R21
	LOAD(0, R0)
	LOAD(1, R1)
	LOAD(2, R2)
	LOAD(3, R3)
	LOAD(4, R4)
	LOAD(5, R5)
	MOVD	record_number(R20), R8
	MOVD	$const_numberXor, R22
	CMP	R22, R8
	BEQ	xor
	SVC
	MOVD	R0, record_result(R20)
	CMN	$4095, R0
	BCS	error
	B	returned
xor:
	EOR	R1, R0
	MOVD	R0, record_result(R20)

returned:
	MOVD	record_flags(R20), R22
	TST	$const_recordForks, R22
	BEQ	wanted
	CBZ	R0, next
	MOVD	$0, R0	// the other process goes on
	B	exit
wanted:
	TST	$const_recordWants, R22
	BEQ	done
	MOVD	record_want(R20), R23
	CMP	R23, R0
	BNE	failed
done:
	TST	$const_recordContinues, R22
	BNE	continue
next:
	ADD	$record__size, R20
	B	step
continue:
	MOVD	control_next(R19), R19
	MOVD	control_entry(R19), R20
	B	step

error:
	MOVD	record_ignore(R20), R22
	CBZ	R22, failed
compare:
	MOVD	(R22), R23
	CBZ	R23, failed
	ADD	$8, R22
	CMP	R23, R0
	BNE	compare
	MOVD	$-1, R23
	MOVD	R23, record_result(R20)
	B	next

failed:
	MOVD	$1, R23
	MOVD	R23, control_failed(R19)
	MOVD	$EXIT_FAILED, R0
exit:
	MOVD	$SYS_exit_group, R8
	SVC
	B	exit
