"""The addresses of the chat's and the account's pages."""

from django.urls import path

from intake.web import account, installation, pages, people, staff

app_name = "intake"

urlpatterns = [
    path("", pages.home, name="home"),
    # Any text, so that a malformed id gets the same answer as one that does not exist.
    path("c/<str:conversation_id>/", pages.conversation, name="conversation"),
    path("c/<str:conversation_id>/rename/", pages.rename_conversation, name="rename_conversation"),
    path("c/<str:conversation_id>/delete/", pages.delete_conversation, name="delete_conversation"),
    path("c/<str:conversation_id>/turns/<str:turn_number>/delete/", pages.delete_turn, name="delete_turn"),
    path("c/<str:conversation_id>/outline/", pages.conversation_outline, name="conversation_outline"),
    path("c/<str:conversation_id>/pin/", pages.pin_conversation, name="pin_conversation"),
    path("c/<str:conversation_id>/archive/", pages.archive_conversation, name="archive_conversation"),
    path("c/<str:conversation_id>/keep/", pages.keep_conversation, name="keep_conversation"),
    path("c/<str:conversation_id>/leave/", pages.leave_conversation, name="leave_conversation"),
    path("conversations/", pages.conversations, name="conversations"),
    path("conversations/change/", pages.change_conversations, name="change_conversations"),
    path("settings/account/", account.account, name="account"),
    path("settings/account/titles/", account.titles, name="titles"),
    path("settings/account/language/", account.language, name="language"),
    path("settings/account/answers/", account.answers, name="answers"),
    path("settings/account/home/", account.home_parts, name="home_parts"),
    path("settings/account/delete/", account.delete_account, name="delete_account"),
    path("settings/account/export/", account.export, name="export_account"),
    path("settings/account/password/", account.password, name="password"),
    path("settings/account/activity/", account.list_activity, name="activity"),
    path("settings/account/sessions/", account.list_sessions, name="sessions"),
    path("settings/account/sessions/end-others/", account.end_other_sessions, name="end_other_sessions"),
    path("settings/account/sessions/<str:name>/end/", account.end_session, name="end_session"),
    path("language/<str:language>.js", pages.catalog, name="catalog"),
    path("worker.js", pages.worker, name="worker"),
    path("offline/", pages.offline, name="offline"),
    path("share/", pages.share, name="share"),
    path("preview/", pages.preview, name="preview"),
    path("favicon.ico", pages.favicon, name="favicon"),
    path("staff/settings/", installation.staff_settings, name="staff_settings"),
    path("staff/people/", people.list_users, name="staff_people"),
    path("staff/people/<str:user_id>/", people.show_user, name="staff_person"),
    path("staff/usage/", people.show_usage, name="staff_usage"),
    path("staff/invite/", people.invite, name="staff_invite"),
    path("staff/models/", staff.show_models, name="staff_models"),
    path("staff/models/<str:key>/", staff.edit_model, name="staff_model"),
    path("register/", account.RegisterView.as_view(), name="register"),
    path("login/", account.LoginView.as_view(), name="login"),
    path("logout/", account.log_out, name="logout"),
]
