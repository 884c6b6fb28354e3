module github.com/theclaw/agents/deploy/check

go 1.26.0

require (
	github.com/compose-spec/compose-go/v2 v2.16.2 // indirect
	helm.sh/helm/v4 v4.3.1 // indirect
)
