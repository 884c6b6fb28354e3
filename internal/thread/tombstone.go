package thread

import "crypto/sha256"

// TombstoneProof is the sha256 that accompanies the chain for an erased event: over its
// link, which is the hash of what was there, the key it keeps, and e, what is there
// now. Whoever changes one of the three must change this too.
func TombstoneProof(e Event, link []byte, key string) []byte {
	now := e.Hash(link)
	h := sha256.New()
	h.Write(now[:])
	h.Write([]byte(key))
	return h.Sum(nil)
}
