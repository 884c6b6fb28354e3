package wire

// Page cuts a sorted list: names after the token, at most size.
func Page(all []string, after string, size, most int) (part []string, next string) {
	if size <= 0 || size > most {
		size = most
	}
	for _, v := range all {
		if v <= after {
			continue
		}
		if len(part) == size {
			return part, part[size-1]
		}
		part = append(part, v)
	}
	return part, ""
}

// Limit is the size of an answer: what was asked for, or def.
func Limit(n int32, def int) int {
	if n <= 0 {
		return def
	}
	return int(n)
}
