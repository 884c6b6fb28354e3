package model

import (
	"net/http"
	"regexp"
	"slices"
	"strings"
)

// Words with which providers report a failure that its status alone does not tell.
var (
	tooLongWords = []string{
		"context_length_exceeded", "exceed_context_size", "maximum context length", "context length",
		"context window", "context size", "prompt is too long", "maximum prompt length",
		"input token count", "exceeds the maximum number of tokens", "exceeded model token limit", "request_too_large",
	}
	policyWords = []string{
		"content_filter", "content filter", "content_policy", "content policy", "content management policy",
		"responsibleaipolicy", "data_inspection_failed", "usage policies",
	}
	// Not the word billing: some providers mention it in plain rate limits.
	noCreditWords = []string{
		"insufficient_quota", "insufficient balance", "insufficient_balance",
		"exceeded_current_quota", "billing_not_active", "billing_hard_limit", "credit balance is too low",
	}
	rateLimitWords = []string{"rate_limit", "rate limit", "too many requests"}
	keyWords       = []string{"invalid_api_key", "authentication_error", "permission_error"}
	requestWords   = []string{"invalid_request_error", "not_found_error"}
)

// ClassOf is the class of a failure that a provider reports: by its HTTP status, 0
// where there is none, and by the text of its report.
func ClassOf(status int, report string) Class {
	report = strings.ToLower(report)
	has := func(words []string) bool {
		return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(report, w) })
	}
	refused := status == 0 || status == 400 || status == 403 || status == 413 || status == 422 || status == 451
	switch {
	case refused && has(tooLongWords), status == http.StatusRequestEntityTooLarge:
		return ContextTooLong
	case refused && has(policyWords), status == http.StatusUnavailableForLegalReasons:
		return Policy
	case (status == 0 || status == http.StatusBadRequest || status == http.StatusTooManyRequests) && has(noCreditWords):
		return Auth // no wait helps an empty account
	case status == http.StatusTooManyRequests, status == 0 && has(rateLimitWords):
		return RateLimited
	case status == http.StatusUnauthorized, status == http.StatusPaymentRequired, status == http.StatusForbidden,
		status == 0 && has(keyWords):
		return Auth
	case status == 0 && has(requestWords):
		return Config
	case status == 0, status >= 500, status == http.StatusRequestTimeout, status == http.StatusConflict, status == http.StatusTooEarly:
		return Unavailable
	}
	return Config
}

// keyPattern is what keys of the well-known providers look like, also when they are
// partly masked by the provider.
var keyPattern = regexp.MustCompile(`\b(sk|pk|gsk|xai|key)-[A-Za-z0-9_*\-]{6,}`)

// maxWords bounds the words of a provider in an error, in bytes.
const maxWords = 300

// CleanWords makes the words of a provider safe to show: without what looks like a key,
// without line breaks, and bounded.
func CleanWords(s string) string {
	s = keyPattern.ReplaceAllString(s, "[key]")
	s = strings.Join(strings.Fields(strings.ToValidUTF8(s, "?")), " ")
	if len(s) > maxWords {
		s = strings.ToValidUTF8(s[:maxWords], "") + "..."
	}
	return s
}
