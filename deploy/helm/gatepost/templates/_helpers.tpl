{{- define "gatepost.fullname" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 45 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 45 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "gatepost.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "gatepost.labels" -}}
{{ include "gatepost.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "gatepost.image" -}}
{{ required "image.repository: required; push the image that you built from the Containerfile" .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}

{{- define "gatepost.secretName" -}}
{{- if and (not .Values.secret.existing) (not (and .Values.secret.database .Values.secret.masterKey)) -}}
{{- fail "secret.existing: required; or set secret.database and secret.masterKey for a trial" -}}
{{- end -}}
{{- .Values.secret.existing | default (include "gatepost.fullname" .) -}}
{{- end -}}

{{- /* The names under which the operations plane is reached through its Service. */ -}}
{{- define "gatepost.operationsHosts" -}}
{{- $name := printf "%s-operations" (include "gatepost.fullname" .) -}}
{{- $port := int .Values.operations.port -}}
{{- range $suffix := list "" (printf ".%s" .Release.Namespace) (printf ".%s.svc" .Release.Namespace) (printf ".%s.svc.cluster.local" .Release.Namespace) -}}
{{- printf "%s%s:%d " $name $suffix $port -}}
{{- end -}}
{{- end -}}

{{- /* The environment of every container. What `settings` names replaces what the chart sets. */ -}}
{{- define "gatepost.environment" -}}
{{- $own := dict "base_url" (required "baseUrl: required, such as https://auth.example.com" .Values.baseUrl) "ops_port" (toString .Values.operations.port) "ops_allowed_hosts" (include "gatepost.operationsHosts" . | trim) -}}
{{- range $name, $text := merge (dict) .Values.settings $own }}
- name: GATEPOST_{{ upper $name }}
  value: {{ $text | quote }}
{{- end }}
- name: GATEPOST_DATABASE
  valueFrom: {secretKeyRef: {name: {{ include "gatepost.secretName" . }}, key: database}}
- name: GATEPOST_MASTER_KEY
  valueFrom: {secretKeyRef: {name: {{ include "gatepost.secretName" . }}, key: master-key}}
{{- with .Values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "gatepost.podSecurity" -}}
automountServiceAccountToken: false
{{- with .Values.serviceAccountName }}
serviceAccountName: {{ . }}
{{- end }}
{{- with .Values.imagePullSecrets }}
imagePullSecrets: {{ toYaml . | nindent 2 }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "gatepost.containerSecurity" -}}
image: {{ include "gatepost.image" . | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
env: {{ include "gatepost.environment" . | nindent 2 }}
volumeMounts:
  - {name: data, mountPath: /var/lib/gatepost}
  - {name: tmp, mountPath: /tmp}
  {{- with .Values.extraVolumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}

{{- /* The state is in PostgreSQL: the data directory has only a copy of the signed checkpoints. */ -}}
{{- define "gatepost.volumes" -}}
- name: data
  emptyDir: {}
- name: tmp
  emptyDir: {medium: Memory, sizeLimit: 64Mi}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}
