{{- define "pydanube.name" -}}
{{- if contains "pydanube" .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-pydanube" .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "pydanube.selector" -}}
app.kubernetes.io/name: pydanube
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "pydanube.labels" -}}
{{ include "pydanube.selector" . }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end -}}

{{- define "pydanube.scheme" -}}
{{- if .Values.tlsSecret }}https{{ else }}http{{ end -}}
{{- end -}}

{{/* The domain of the pods, after their names. */}}
{{- define "pydanube.domain" -}}
{{ include "pydanube.name" . }}-brokers.{{ .Release.Namespace }}.svc.{{ .Values.clusterDomain }}
{{- end -}}

{{/* The settings of all brokers, with what follows from other values. */}}
{{- define "pydanube.settings" -}}
{{- $etcd := required "settings.metadata.etcd.endpoints is required" .Values.settings.metadata.etcd.endpoints -}}
{{- $store := required "settings.storage.remote.url is required" .Values.settings.storage.remote.url -}}
{{- if not (or .Values.bootstrapKey.secret .Values.insecure) -}}
{{- fail "clients need credentials: set bootstrapKey.secret; or set insecure to true, so that everybody who reaches the ports can do everything" -}}
{{- end -}}
{{- $url := printf "%s://%s.%s.svc.%s:6650" (include "pydanube.scheme" .) (include "pydanube.name" .) .Release.Namespace .Values.clusterDomain -}}
{{- $derived := dict "listen" (dict "host" "0.0.0.0" "insecure" .Values.insecure "connect_url" (.Values.connectUrl | default $url)) -}}
{{- if .Values.bootstrapKey.secret -}}
{{- $_ := set $derived "security" (dict "enabled" true "bootstrap_key_file" "/run/secrets/danube/bootstrap/key") -}}
{{- end -}}
{{- if .Values.tlsSecret -}}
{{- $_ := set $derived "tls" (dict "certificate_file" "/run/secrets/danube/tls/tls.crt" "key_file" "/run/secrets/danube/tls/tls.key") -}}
{{- $_ := set $derived "cluster" (dict "ca_file" "/run/secrets/danube/tls/ca.crt") -}}
{{- end -}}
{{- toYaml (mergeOverwrite $derived (deepCopy .Values.settings)) -}}
{{- end -}}
