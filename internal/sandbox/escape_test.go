package sandbox
const attemptArg="x"
func runAttempt(string) int {return 0}
