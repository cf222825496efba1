package backendtest

import "slices"

// cases are all cases, in the order of the groups.
var cases = slices.Concat(
	pathCases, maskCases, protectCases, layoutCases, ownCases,
	descriptorCases, environmentCases, socketCases, exactSocketCases, networkCases, networkAttackCases,
	processCases, privilegeCases, ipcCases, commandCases, limitCases, residueCases, verifyCases,
)
